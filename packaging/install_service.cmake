# install_service.cmake - at `cmake --install`: the systemd unit, which names its program and its configuration
# by their full paths, and the configuration, unless there is one.
# BINDIR, SYSCONFDIR: relative to the prefix; SOURCE: this folder; MADE: a folder for what is made here
get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
set(bindir "${prefix}/${BINDIR}")
set(sysconfdir "${prefix}/${SYSCONFDIR}")
if(prefix STREQUAL "/usr")
    set(sysconfdir "/${SYSCONFDIR}")
endif()
configure_file("${SOURCE}/nibble.service.in" "${MADE}/nibble.service" @ONLY)
# file(INSTALL) takes files whose times are in the same second for equal.
file(REMOVE "$ENV{DESTDIR}${prefix}/lib/systemd/system/nibble.service")
file(INSTALL "${MADE}/nibble.service" DESTINATION "${prefix}/lib/systemd/system")
if(NOT EXISTS "$ENV{DESTDIR}${sysconfdir}/nibble/nibble.yaml")
    file(INSTALL "${SOURCE}/nibble.yaml" DESTINATION "${sysconfdir}/nibble")
endif()

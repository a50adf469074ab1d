# NbPackage - `cpack -G DEB` in a build folder makes nibble_VERSION-1_ARCH.deb of what is installed: the
# program, libraries, headers and the bundled model, in one package.
if(NB_SANITIZE OR NB_FUZZ STREQUAL "ON")
    return()
endif()
set(nb_debian "${nb_packaging}/debian")
install(CODE "set(SOURCE \"${CMAKE_SOURCE_DIR}\")
set(VERSION \"${PROJECT_VERSION}\")
set(MADE \"${CMAKE_BINARY_DIR}/gen/debian\")
set(DATADIR \"${CMAKE_INSTALL_DATADIR}\")
include(\"${nb_debian}/install.cmake\")" COMPONENT debian EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};nibble;ALL;/;${CMAKE_BINARY_DIR};nibble;debian;/")
set(CPACK_PACKAGE_CONTACT "nibble maintainers <maintainers@nibble.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "server of language models with a 4-bit KV cache")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "nibble serves large language models with multi-head latent attention from a
4-bit cache of latents, with APIs as OpenAI and Anthropic have them. It runs on
a CPU, or on an NVIDIA GPU where the package was built with CUDA.

The package has the command, a systemd service that is not enabled, the C
library with its headers, and a small model to try it with.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # where there is dpkg-shlibdeps (dpkg-dev)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "pkg-config, libjansson-dev, libpcre2-dev, libutf8proc-dev, libssl-dev")
set(nb_shlibs "${CMAKE_BINARY_DIR}/gen/debian/shlibs")
file(CONFIGURE OUTPUT "${nb_shlibs}"
    CONTENT "libnibble ${PROJECT_VERSION_MAJOR} nibble (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA "${nb_debian}/conffiles" "${nb_debian}/triggers" "${nb_shlibs}"
    "${nb_debian}/postinst" "${nb_debian}/prerm" "${nb_debian}/postrm")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)

# NbInstall - libnibble.so.0 and libnibble.a, and what `cmake --install` puts where.
#
# Both libraries are made of the objects that include/nibble needs, and show nothing but NB_API
# (tools/check_symbols.py).  Nothing of an installation knows its own place: it may be moved, and --prefix
# and DESTDIR do what they should.  Builds with a sanitizer are not installed.
if(NB_SANITIZE OR NB_FUZZ STREQUAL "ON")
    return()
endif()
include(CMakePackageConfigHelpers)
set(nb_packaging "${CMAKE_SOURCE_DIR}/packaging")

# ---- libraries ------------------------------------------------------------------------------------
list(TRANSFORM nb_folders_api PREPEND nb_ OUTPUT_VARIABLE nb_api_targets)
set(nb_api_objects "")
foreach(t IN LISTS nb_built)
    if(t IN_LIST nb_api_targets OR t MATCHES "^nb_kernel_|^nb_emu$")
        list(APPEND nb_api_objects $<TARGET_OBJECTS:${t}>)
    endif()
endforeach()

add_library(nibble_shared SHARED ${nb_api_objects})
set_target_properties(nibble_shared PROPERTIES OUTPUT_NAME nibble EXPORT_NAME nibble LINKER_LANGUAGE C
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_link_libraries(nibble_shared PRIVATE nb_flags ${nb_libs_api} ${CMAKE_DL_LIBS})
target_link_options(nibble_shared PRIVATE LINKER:-z,defs)

# One object, in which everything hidden has become local, so that it cannot clash with the names of a program.
set(nb_one "${CMAKE_BINARY_DIR}/gen/libnibble")
separate_arguments(nb_link_one UNIX_COMMAND "${CMAKE_C_FLAGS}")
if(NB_LTO AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND nb_link_one -flinker-output=nolto-rel)
endif()
add_custom_command(OUTPUT "${nb_one}.o"
    COMMAND "${CMAKE_C_COMPILER}" ${nb_link_one} -r -nostdlib -o "${nb_one}.all.o" ${nb_api_objects}
    COMMAND "${CMAKE_OBJCOPY}" --localize-hidden "${nb_one}.all.o" "${nb_one}.o"
    DEPENDS ${nb_api_objects} COMMENT "Linking libnibble.o" VERBATIM COMMAND_EXPAND_LISTS)
add_library(nibble_static STATIC "${nb_one}.o")
set_target_properties(nibble_static PROPERTIES OUTPUT_NAME nibble EXPORT_NAME static LINKER_LANGUAGE C)
set_source_files_properties("${nb_one}.o" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
target_link_libraries(nibble_static INTERFACE ${JANSSON_LIBRARIES} ${PCRE2_LIBRARIES} ${UTF8PROC_LIBRARIES}
    ${CRYPTO_LIBRARIES} pthread ${CMAKE_DL_LIBS} m)

foreach(t IN ITEMS nibble_shared nibble_static)
    target_include_directories(${t} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()

# ---- programs and libraries -----------------------------------------------------------------------
install(TARGETS nibble)
install(TARGETS nibble_shared nibble_static EXPORT nibble)
if(TARGET nibble-cuda)
    install(TARGETS nibble-cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/nibble")
endif()
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/nibble" TYPE INCLUDE)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/models/nibble-tiny" "${CMAKE_SOURCE_DIR}/models/nibble-tools"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/nibble/models")

# ---- for programs that use the library ---------------------------------------------------------------
set(nb_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/nibble")
install(EXPORT nibble NAMESPACE nibble:: FILE nibbleTargets.cmake DESTINATION "${nb_cmake_dir}")
configure_package_config_file("${nb_packaging}/nibbleConfig.cmake.in" "${CMAKE_BINARY_DIR}/gen/nibbleConfig.cmake"
    INSTALL_DESTINATION "${nb_cmake_dir}" PATH_VARS CMAKE_INSTALL_DATADIR NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/gen/nibbleConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion) # version 0 of the ABI promises nothing
install(FILES "${CMAKE_BINARY_DIR}/gen/nibbleConfig.cmake" "${CMAKE_BINARY_DIR}/gen/nibbleConfigVersion.cmake"
    DESTINATION "${nb_cmake_dir}")

file(RELATIVE_PATH nb_pc_to_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
configure_file("${nb_packaging}/nibble.pc.in" "${CMAKE_BINARY_DIR}/gen/nibble.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/gen/nibble.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# ---- manual pages and completions, from the tables of options -------------------------------------------
# Made by the program itself; not when it cannot run here.
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
    set(nb_share "${CMAKE_BINARY_DIR}/gen/share")
    find_program(NB_GZIP gzip)
    mark_as_advanced(NB_GZIP)
    set(nb_compress "")
    if(NB_GZIP)
        set(nb_compress COMMAND "${NB_GZIP}" -9nr "${nb_share}/man")
    endif()
    add_custom_command(OUTPUT "${nb_share}/made"
        COMMAND "${CMAKE_COMMAND}" -E rm -rf "${nb_share}"
        COMMAND nibble docs "${nb_share}"
        ${nb_compress}
        COMMAND "${CMAKE_COMMAND}" -E touch "${nb_share}/made"
        DEPENDS nibble COMMENT "Writing manual pages and completions" VERBATIM)
    add_custom_target(nibble_docs ALL DEPENDS "${nb_share}/made")
    install(DIRECTORY "${nb_share}/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}")
    install(DIRECTORY "${nb_share}/bash-completion" "${nb_share}/zsh" "${nb_share}/fish"
        DESTINATION "${CMAKE_INSTALL_DATADIR}")
endif()

# ---- service, licences -----------------------------------------------------------------------------------
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    install(CODE "set(BINDIR \"${CMAKE_INSTALL_BINDIR}\")
set(SYSCONFDIR \"${CMAKE_INSTALL_SYSCONFDIR}\")
set(SOURCE \"${nb_packaging}\")
set(MADE \"${CMAKE_BINARY_DIR}/gen\")
include(\"${nb_packaging}/install_service.cmake\")")
endif()
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" "${nb_packaging}/THIRD-PARTY.md" TYPE DOC)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/examples" TYPE DOC)
if(NOT nb_web_why) # licences of the packages in the page
    install(FILES "${nb_web_dir}/page/dist/THIRD-PARTY.txt" TYPE DOC RENAME THIRD-PARTY-page.txt OPTIONAL)
endif()

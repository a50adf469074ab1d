# NbWeb - the page at /: built from web/ with npm and Vite, embedded in libnibble.a.
#
# NB_WEB=AUTO builds it where Node.js 18 or newer and npm are; where they are not, or npm cannot get
# its packages, the program is built without the page, and / says so.  ON makes that an error.
nb_choice(NB_WEB AUTO "The page for browsers")

set(nb_page_c "${CMAKE_BINARY_DIR}/gen/page_files.c")
set(nb_web_failed "${CMAKE_BINARY_DIR}/gen/page_failed")
set(nb_web_why "")
if(NB_WEB STREQUAL "OFF")
    set(nb_web_why "not wanted")
else()
    find_program(NB_NODE node)
    find_program(NB_NPM npm)
    mark_as_advanced(NB_NODE NB_NPM)
    if(NOT NB_NODE OR NOT NB_NPM)
        set(nb_web_why "node or npm not found")
    else()
        execute_process(COMMAND "${NB_NODE}" --version OUTPUT_VARIABLE nb_node_version
            OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        string(REGEX REPLACE "^v" "" nb_node_version "${nb_node_version}")
        if(nb_node_version VERSION_LESS 18)
            set(nb_web_why "node ${nb_node_version} is older than 18")
        endif()
    endif()
    if(nb_web_why AND NB_WEB STREQUAL "ON")
        message(FATAL_ERROR "NB_WEB=ON, but ${nb_web_why} (Debian and Ubuntu: nodejs npm)")
    endif()
endif()

if(nb_web_why)
    set(nb_web_text "no (${nb_web_why}): / answers a plain text")
    set(text "/* page_files.c - generated: no page. */\n#include \"serve/page.h\"\n\n")
    string(APPEND text "const nb_page_file nb_page_files[1];\nconst size_t nb_page_n_files = 0;\n")
    file(CONFIGURE OUTPUT "${nb_page_c}" CONTENT "${text}" @ONLY)
else()
    set(nb_web_text "node ${nb_node_version}")
    if(EXISTS "${nb_web_failed}") # the last build had no packages: try again
        file(REMOVE "${nb_web_failed}" "${nb_page_c}")
        string(APPEND nb_web_text " (tried again: the last build could not get its packages)")
    endif()
    # The presets share one folder, and with it packages and result; a lock keeps them apart.
    set(nb_web_dir "${CMAKE_BINARY_DIR}/web")
    cmake_path(IS_PREFIX CMAKE_SOURCE_DIR "${CMAKE_BINARY_DIR}" NORMALIZE nb_inside)
    if(nb_inside)
        set(nb_web_dir "${CMAKE_SOURCE_DIR}/build/web")
    endif()
    file(GLOB_RECURSE nb_web_sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}/web"
        "${CMAKE_SOURCE_DIR}/web/src/*" "${CMAKE_SOURCE_DIR}/web/public/*")
    list(APPEND nb_web_sources .npmrc embed.mjs index.html package-lock.json package.json
        tsconfig.json vite.config.mjs)
    list(TRANSFORM nb_web_sources PREPEND "${CMAKE_SOURCE_DIR}/web/" OUTPUT_VARIABLE nb_web_depends)
    add_custom_command(OUTPUT "${nb_page_c}"
        COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${CMAKE_SOURCE_DIR}/web" "-DDIR=${nb_web_dir}"
            "-DFILES=${nb_web_sources}" "-DOUT=${nb_page_c}" "-DFAILED=${nb_web_failed}"
            "-DNODE=${NB_NODE}" "-DNPM=${NB_NPM}" "-DWANTED=${NB_WEB}"
            -P "${CMAKE_SOURCE_DIR}/cmake/NbWebBuild.cmake"
        DEPENDS ${nb_web_depends} "${CMAKE_SOURCE_DIR}/cmake/NbWebBuild.cmake"
        COMMENT "Building the page" VERBATIM)
endif()
if(TARGET nb_serve)
    target_sources(nb_serve PRIVATE "${nb_page_c}")
endif()

# NbWebBuild - a script (cmake -P): web/ -> page_files.c.
#
#   SOURCE, FILES   web/ and the files in it that count
#   DIR             where it is built; shared, locked
#   OUT, FAILED     the C file; a file that says that the packages could not be had
#   NODE, NPM, WANTED
cmake_minimum_required(VERSION 3.22)

file(MAKE_DIRECTORY "${DIR}")
file(LOCK "${DIR}/lock" GUARD PROCESS TIMEOUT 900)

set(all "")
foreach(f IN LISTS FILES)
    file(SHA256 "${SOURCE}/${f}" hash)
    string(APPEND all "${f} ${hash}\n")
endforeach()
string(SHA256 key "${all}")
set(result "${DIR}/page_files.c")
set(result_key "")
if(EXISTS "${result}" AND EXISTS "${DIR}/key")
    file(READ "${DIR}/key" result_key)
endif()

if(NOT result_key STREQUAL key)
    file(REMOVE "${DIR}/key")
    # A copy, so that the tree stays as it is; what is there of packages stays.
    file(REMOVE_RECURSE "${DIR}/page/src" "${DIR}/page/public" "${DIR}/page/dist")
    foreach(f IN LISTS FILES)
        get_filename_component(sub "${f}" DIRECTORY)
        file(COPY "${SOURCE}/${f}" DESTINATION "${DIR}/page/${sub}")
    endforeach()

    file(SHA256 "${SOURCE}/package-lock.json" lock)
    set(have "")
    if(EXISTS "${DIR}/packages" AND IS_DIRECTORY "${DIR}/page/node_modules")
        file(READ "${DIR}/packages" have)
    endif()
    if(NOT have STREQUAL lock)
        file(REMOVE "${DIR}/packages")
        execute_process(COMMAND "${NPM}" ci --prefer-offline --no-audit --no-fund
                --fetch-retries=1 --fetch-timeout=30000
            WORKING_DIRECTORY "${DIR}/page" RESULT_VARIABLE rc OUTPUT_VARIABLE log ERROR_VARIABLE log)
        if(NOT rc EQUAL 0)
            if(WANTED STREQUAL "ON")
                message(FATAL_ERROR "npm ci failed:\n${log}")
            endif()
            message("${log}")
            message("The page is left out: npm could not get its packages (see above).")
            file(WRITE "${FAILED}" "npm ci failed\n")
            file(WRITE "${OUT}" "/* page_files.c - generated: no page. */\n#include \"serve/page.h\"\n\n"
                "const nb_page_file nb_page_files[1];\nconst size_t nb_page_n_files = 0;\n")
            return()
        endif()
        file(WRITE "${DIR}/packages" "${lock}")
    endif()

    foreach(step IN ITEMS "node_modules/vite/bin/vite.js;build;--logLevel;warn"
            "embed.mjs;dist;${result}")
        execute_process(COMMAND "${NODE}" ${step} WORKING_DIRECTORY "${DIR}/page"
            RESULT_VARIABLE rc OUTPUT_VARIABLE log ERROR_VARIABLE log)
        if(NOT rc EQUAL 0)
            message(FATAL_ERROR "building the page failed: ${step}\n${log}")
        endif()
    endforeach()
    file(WRITE "${DIR}/key" "${key}")
endif()
file(REMOVE "${FAILED}")
configure_file("${result}" "${OUT}" COPYONLY)
file(TOUCH "${OUT}")

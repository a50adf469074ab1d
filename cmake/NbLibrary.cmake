# NbLibrary - src/ becomes libnibble_core.a, which the command, the tests and the benchmarks link; apps/nibble
# the command `nibble`.  What other programs link is made of the same objects in NbInstall.cmake.
configure_file("${CMAKE_SOURCE_DIR}/cmake/nb_config.h.in" "${CMAKE_BINARY_DIR}/gen/nb_config.h")

set(nb_folders_api base os num kernel load text parse model sample grammar sched kv dev comm timing engine) # what include/nibble needs
set(nb_folders ${nb_folders_api} serve quality calibrate report capacity convert)
set(nb_objects "")
set(nb_built "")
include(NbEmbed)

# nb_objects_of(TARGET SOURCES...): an OBJECT library; nothing when there are no sources.
macro(nb_objects_of target)
    if(${ARGC} GREATER 1)
        add_library(${target} OBJECT ${ARGN})
        target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}/src")
        target_link_libraries(${target} PRIVATE nb_flags ${nb_libs})
        list(APPEND nb_objects $<TARGET_OBJECTS:${target}>)
        list(APPEND nb_built ${target})
    endif()
endmacro()

foreach(folder IN LISTS nb_folders)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${folder}/*.c")
    list(FILTER sources EXCLUDE REGEX "/src/kernel/(x86|arm|cuda)/|/src/dev/cuda/")
    if(folder STREQUAL "capacity")
        nb_embed(sources nb_embedded_gpus "${CMAKE_SOURCE_DIR}/src/capacity/gpus.json")
        file(GLOB configs CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/models/configs/*.json")
        nb_embed(sources nb_embedded_configs ${configs})
    endif()
    nb_objects_of(nb_${folder} ${sources})
endforeach()

foreach(isa IN LISTS nb_isa)
    file(GLOB sources CONFIGURE_DEPENDS
        "${CMAKE_SOURCE_DIR}/src/kernel/${nb_isa_dir_${isa}}/*_${isa}.c")
    nb_objects_of(nb_kernel_${isa} ${sources})
    if(TARGET nb_kernel_${isa})
        # gcc inserts vzeroupper from -O2 on: kernels get it in the sanitizer builds too.
        target_compile_options(nb_kernel_${isa} PRIVATE ${nb_flags_${isa}} $<$<CONFIG:Debug>:-O2>)
        # gcc before 14 puts vectors of 64 bytes at addresses that are multiples of 32 when AddressSanitizer
        # looks for uses of a stack frame after the return (gcc bug 110027).
        if(NB_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU" AND
           CMAKE_C_COMPILER_VERSION VERSION_LESS 14 AND isa MATCHES "avx512|amx")
            target_compile_options(nb_kernel_${isa} PRIVATE --param=asan-use-after-return=0)
        endif()
    endif()
endforeach()

if(NB_EMULATED)
    nb_objects_of(nb_emu "${CMAKE_SOURCE_DIR}/tests/emu/emu_tile.c")
    target_compile_options(nb_emu PRIVATE ${nb_flags_avx512})
endif()

# POSIX is visible in src/os (and apps, tests, bench) only.  A file that needs more than POSIX
# defines _GNU_SOURCE itself, before its first #include.
set(nb_posix _POSIX_C_SOURCE=200809L)
foreach(folder IN ITEMS os serve)
    if(TARGET nb_${folder})
        target_compile_definitions(nb_${folder} PRIVATE ${nb_posix})
    endif()
endforeach()

if(nb_objects)
    add_library(nibble_core STATIC ${nb_objects})
    set_target_properties(nibble_core PROPERTIES LINKER_LANGUAGE C)
    target_link_libraries(nibble_core INTERFACE ${nb_libs} ${CMAKE_DL_LIBS})
else()
    message(FATAL_ERROR "no sources under src/")
endif()
if(NB_HAVE_CUDA)
    nb_add_cuda()
endif()
if(NB_HAVE_CUDA_EMU)
    nb_add_cuda_emu()
endif()

# MODEL may be the name of a bundled model, in the build folder as in an installation.
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/share/nibble")
file(CREATE_LINK "${CMAKE_SOURCE_DIR}/models" "${CMAKE_BINARY_DIR}/share/nibble/models" SYMBOLIC)

# The client of the hub (pull, verify): part of the command and the tests, so that libnibble needs no libcurl.
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/hub/*.c")
add_library(nibble_hub STATIC ${sources})
target_include_directories(nibble_hub PRIVATE "${CMAKE_SOURCE_DIR}/src")
target_compile_definitions(nibble_hub PRIVATE ${nb_posix})
target_link_libraries(nibble_hub PRIVATE nb_flags PUBLIC nibble_core PkgConfig::CURL)

# The command: one file per subcommand, against the public header; `serve` also against src/serve
# (tools/check_includes.py has the table).
set(nb_app OFF)
file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/apps/nibble/*.c")
if(EXISTS "${CMAKE_SOURCE_DIR}/apps/nibble/main.c")
    set(nb_app ON)
    add_library(nibble_cli OBJECT ${sources}) # also of nibble-forced (NbTests.cmake)
    target_include_directories(nibble_cli PRIVATE "${CMAKE_SOURCE_DIR}/src")
    target_compile_definitions(nibble_cli PRIVATE ${nb_posix})
    target_link_libraries(nibble_cli PUBLIC nb_flags nibble_hub nibble_core)
    if(NB_HAVE_LIBEDIT)
        target_link_libraries(nibble_cli PUBLIC PkgConfig::LIBEDIT)
    endif()
    add_executable(nibble $<TARGET_OBJECTS:nibble_cli>)
    target_link_libraries(nibble PRIVATE nibble_cli)
endif()

# NbCuda - CUDA is one more instruction set behind C interfaces.  src/kernel/cuda/<family>/*.cu
# and src/dev/cuda/*.cu become OBJECT libraries, one per folder, because the architecture can only be
# set per target; together they are the shared object libnibble-cuda.so, which the program loads when it
# is there.  For tests the same sources, less sm90/, are compiled by the C++ compiler with
# src/kernel/cuda/common/cu_emu.h, as libnibble-cuda-emu.so.
set(NB_HAVE_CUDA 0)
set(NB_HAVE_CUDA_EMU 0)
file(GLOB_RECURSE nb_cuda_sources CONFIGURE_DEPENDS
    "${CMAKE_SOURCE_DIR}/src/kernel/cuda/*.cu" "${CMAKE_SOURCE_DIR}/src/dev/cuda/*.cu")
set(nb_cuda_least 12.0) # knows sm_90a, and cudaGraphInstantiate as runtime.cu calls it

if(NB_CUDA STREQUAL "OFF")
    set(nb_cuda_why "not wanted")
else()
    if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
        find_program(NB_NVCC nvcc PATHS /usr/local/cuda/bin /opt/cuda/bin)
        mark_as_advanced(NB_NVCC)
        if(NB_NVCC)
            set(CMAKE_CUDA_COMPILER "${NB_NVCC}")
        endif()
    endif()
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        set(CMAKE_CUDA_ARCHITECTURES ${NB_CUDA_ARCHS})
        set(CMAKE_CUDA_STANDARD 17)
        set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
        enable_language(CUDA)
        string(REPLACE ";" " " archs "${NB_CUDA_ARCHS}")
        if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS nb_cuda_least)
            set(nb_cuda_why "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old (${nb_cuda_least} is needed)")
        else()
            set(nb_cuda_why "have ${CMAKE_CUDA_COMPILER_VERSION}, archs ${archs}")
            set(NB_HAVE_CUDA 1)
        endif()
    else()
        set(nb_cuda_why "no nvcc that works was found")
    endif()
    if(NB_CUDA STREQUAL "ON" AND NOT NB_HAVE_CUDA)
        message(FATAL_ERROR "NB_CUDA=ON, but ${nb_cuda_why}.  Put nvcc into PATH, or set "
            "CUDACXX=/path/to/nvcc, or configure with NB_CUDA=OFF.")
    endif()
endif()

# The emulation is for tests and needs a C++ compiler only.
if(NB_CUDA_EMU STREQUAL "OFF" OR (NB_CUDA_EMU STREQUAL "AUTO" AND NOT NB_TESTS))
    set(nb_cuda_emu_why "not wanted")
elseif(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|aarch64|arm64)$")
    set(nb_cuda_emu_why "not on ${CMAKE_SYSTEM_PROCESSOR}")
else()
    include(CheckLanguage)
    check_language(CXX)
    if(CMAKE_CXX_COMPILER)
        enable_language(CXX)
        set(NB_HAVE_CUDA_EMU 1)
        set(nb_cuda_emu_why "have ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
    else()
        set(nb_cuda_emu_why "no C++ compiler found")
    endif()
endif()
if(NB_CUDA_EMU STREQUAL "ON" AND NOT NB_HAVE_CUDA_EMU)
    message(FATAL_ERROR "NB_CUDA_EMU=ON, but: ${nb_cuda_emu_why}")
endif()

# A shared object that exports one function and leaves nothing to be found elsewhere.
set(nb_cuda_exports "${CMAKE_BINARY_DIR}/gen/nibble-cuda.map")
file(CONFIGURE OUTPUT "${nb_cuda_exports}" CONTENT "{ global: nb_cuda_get_api; local: *; };\n")
function(nb_cuda_library target)
    add_library(${target} SHARED ${ARGN})
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
    target_link_options(${target} PRIVATE "LINKER:--version-script=${nb_cuda_exports}"
        "LINKER:-z,defs" "LINKER:-z,relro" "LINKER:-z,now")
    set_target_properties(${target} PROPERTIES LINK_DEPENDS "${nb_cuda_exports}")
    target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
endfunction()

function(nb_add_cuda)
    # Two nvcc at a time: one of these files takes up to 2 GB.
    set_property(GLOBAL APPEND PROPERTY JOB_POOLS nb_nvcc=2)
    foreach(f IN LISTS nb_cuda_sources)
        get_filename_component(dir "${f}" DIRECTORY)
        file(RELATIVE_PATH rel "${CMAKE_SOURCE_DIR}/src" "${dir}")
        string(MAKE_C_IDENTIFIER "nb_cuda_${rel}" target)
        if(NOT TARGET ${target})
            add_library(${target} OBJECT)
            target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}/src"
                "${CMAKE_SOURCE_DIR}/include" "${CMAKE_BINARY_DIR}/gen")
            target_compile_options(${target} PRIVATE -O3 -Xcompiler=-Wall)
            if(NB_WERROR)
                target_compile_options(${target} PRIVATE -Werror all-warnings -Xcompiler=-Werror)
            endif()
            set_target_properties(${target} PROPERTIES CUDA_VISIBILITY_PRESET hidden
                JOB_POOL_COMPILE nb_nvcc)
            if(rel MATCHES "/sm90$") # these use the architecture-specific instructions of one chip
                set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES 90a-real)
            endif()
            list(APPEND targets ${target})
        endif()
        target_sources(${target} PRIVATE "${f}")
    endforeach()
    foreach(t IN LISTS targets)
        list(APPEND objects $<TARGET_OBJECTS:${t}>)
    endforeach()
    nb_cuda_library(nibble-cuda ${objects})
    set_target_properties(nibble-cuda PROPERTIES LINKER_LANGUAGE CUDA)
    install(TARGETS nibble-cuda LIBRARY DESTINATION lib)
endfunction()

# No sanitizer inside: it would take the stacks of the fibers for overflows.
function(nb_add_cuda_emu)
    set(files ${nb_cuda_sources})
    list(FILTER files EXCLUDE REGEX "/sm90/")
    foreach(f IN LISTS files) # a .cu may be CUDA for another library of this build
        file(RELATIVE_PATH rel "${CMAKE_SOURCE_DIR}/src" "${f}")
        string(MAKE_C_IDENTIFIER "${rel}" name)
        file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/gen/cuda_emu/${name}.cpp"
            CONTENT "#include \"${rel}\"\n")
        list(APPEND sources "${CMAKE_BINARY_DIR}/gen/cuda_emu/${name}.cpp")
    endforeach()
    file(GLOB emulator CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/dev/cuda/emu/*.cpp")
    add_library(nb_cuda_emu_core OBJECT ${emulator} "${CMAKE_BINARY_DIR}/gen/cuda_emu/dev_cuda_runtime_cu.cpp")
    list(REMOVE_ITEM sources "${CMAKE_BINARY_DIR}/gen/cuda_emu/dev_cuda_runtime_cu.cpp")
    add_library(nb_cuda_emu_kernels OBJECT ${sources})
    foreach(t IN ITEMS nb_cuda_emu_core nb_cuda_emu_kernels)
        nb_cuda_emu_settings(${t})
    endforeach()
    nb_cuda_library(nibble-cuda-emu $<TARGET_OBJECTS:nb_cuda_emu_core> $<TARGET_OBJECTS:nb_cuda_emu_kernels>)
    set_target_properties(nibble-cuda-emu PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

function(nb_cuda_emu_settings target)
    target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}/src"
        "${CMAKE_SOURCE_DIR}/include" "${CMAKE_BINARY_DIR}/gen")
    target_compile_definitions(${target} PRIVATE NB_CUDA_EMULATED=1)
    target_compile_options(${target} PRIVATE -O2 -ffp-contract=off -fno-exceptions -fno-rtti -Wall
        -Wno-unknown-pragmas $<$<BOOL:${NB_WERROR}>:-Werror>)
    set_target_properties(${target} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON
        CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden)
endfunction()

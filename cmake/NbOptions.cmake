# NbOptions - the options of the build, and what holds for every target.

function(nb_choice name default help)
    set(${name} "${default}" CACHE STRING "${help} (AUTO|ON|OFF)")
    set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
    string(TOUPPER "${${name}}" value)
    if(NOT value MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "${name}=${${name}}: expected AUTO, ON or OFF")
    endif()
    set(${name} "${value}" PARENT_SCOPE)
endfunction()

nb_choice(NB_CUDA AUTO "CUDA kernels")
nb_choice(NB_CUDA_EMU AUTO "CUDA kernels emulated on the processor, for tests")
nb_choice(NB_TESTS AUTO "Tests and the kernel checker")
nb_choice(NB_FUZZ AUTO "Fuzz targets: AUTO with the replay driver, ON with libFuzzer")
set(NB_CUDA_ARCHS "80-real;90a-real" CACHE STRING "CUDA architectures to compile for")
set(NB_ISA "AUTO" CACHE STRING "Instruction sets: AUTO, none, or a list of avx2 avxvnni avx512 avx512bf16 amx neon")
set(NB_SANITIZE "" CACHE STRING "Argument of -fsanitize=, such as address,undefined or thread")
option(NB_WERROR "Warnings are errors" OFF)
option(NB_LTO "Link-time optimisation" OFF)
option(NB_EMULATE "AVX-512 and AMX kernels run on AVX2, through tests/emu: for tests only" OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, RelWithDebInfo or Release" FORCE)
endif()

# Folders of an installation, and the way from one to the other: an installation may be moved.
include(GNUInstallDirs)
file(RELATIVE_PATH NB_BIN_TO_LIB "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
file(RELATIVE_PATH NB_BIN_TO_DATA "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_DATADIR}")
file(RELATIVE_PATH NB_LIB_TO_DATA "${CMAKE_INSTALL_FULL_LIBDIR}" "${CMAKE_INSTALL_FULL_DATADIR}")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Assertions stay in every build type: CMake's defaults, less -DNDEBUG.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELEASE "-O3")

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

if(NB_LTO)
    include(CheckIPOSupported)
    check_ipo_supported(LANGUAGES C)
    set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()

# nb_flags: for every target of ours.  -ffp-contract=off makes a*b+c two roundings on every
# machine; fused multiply-adds are written out where they are meant.
add_library(nb_flags INTERFACE)
target_compile_options(nb_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off -fno-common>)
target_include_directories(nb_flags INTERFACE
    "${CMAKE_SOURCE_DIR}/include" "${CMAKE_BINARY_DIR}/gen")

set(nb_warnings -Wall -Wextra -Wshadow -Wundef -Wconversion -Wstrict-prototypes
    -Wmissing-prototypes -Wvla)
if(NB_WERROR)
    list(APPEND nb_warnings -Werror)
endif()
target_compile_options(nb_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:${nb_warnings}>")

if(NB_SANITIZE)
    set(nb_san -fsanitize=${NB_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    if(NB_SANITIZE MATCHES "undefined") # gcc leaves this one out of `undefined`
        list(APPEND nb_san -fsanitize=float-cast-overflow)
    endif()
    target_compile_options(nb_flags INTERFACE ${nb_san})
    target_link_options(nb_flags INTERFACE ${nb_san})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(nb_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
        -fstack-protector-strong)
    if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
        target_link_options(nb_flags INTERFACE -Wl,-z,relro,-z,now)
    endif()
endif()

if(NB_FUZZ STREQUAL "ON")
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "NB_FUZZ=ON needs clang (libFuzzer); the compiler is "
            "${CMAKE_C_COMPILER_ID}.  Use the preset `fuzz`, or NB_FUZZ=AUTO for the replay driver.")
    endif()
    target_compile_options(nb_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

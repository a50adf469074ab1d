# NbTests - tests/ is globbed: a new file with the right name is a new test.
#
#   tests/unit/test_*.c     one cmocka program each       labels unit fast
#   tests/prop/prop_*.c     one program each              label  prop
#   tests/check/*.c         nibble-check --all-caps       label  check
#   (the same)              nibble-check --cuda, with the kernels emulated      labels check cuda
#   tests/emu/*.c           the emulation of AVX-512 and AMX   labels unit fast
#   tests/parity/*.c        nibble-parity DIR, for each DIR with expected.safetensors   label parity
#   tests/fuzz/fuzz_*.c     corpus replay, a short mutation run, failing allocations    label fuzz
#   tests/e2e/*.sh          script NIBBLE SOURCE_DIR      label  e2e
#   tests/web/*.sh          the page in Chromium          labels e2e web
#   tests/server/*.{sh,py}  script NIBBLE SOURCE_DIR      labels e2e server
#
# Under a sanitizer the labels web and again are left out: a browser, and what runs the code of other tests
# for longer.
#
# Other .c files of unit, prop and fuzz are helpers, linked to every program of that folder.  Exit
# code 77 means skipped.  A name with `slow` gets the label slow; one with pool, thread, queue or
# engine the label threads (run under ThreadSanitizer).
set(nb_test_dir "${CMAKE_SOURCE_DIR}/tests")
set(nb_test_count 0)

set(nb_test_scale 1)
if(NB_SANITIZE)
    set(nb_test_scale 5)
elseif(NB_EMULATED)
    set(nb_test_scale 4)
endif()
set(nb_test_env
    "NB_SOURCE_DIR=${CMAKE_SOURCE_DIR}"
    "NB_SANITIZE=${NB_SANITIZE}"
    "NB_FAKE_GPU_FOLDER=${CMAKE_BINARY_DIR}/tests/fake"
    "NB_CUDA_EMU_LIBRARY=$<$<BOOL:${NB_HAVE_CUDA_EMU}>:${CMAKE_BINARY_DIR}/libnibble-cuda-emu.so>"
    "ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")

# Seconds on two cores, of those that take long: ctest begins with them, so that none is alone at the end.
# What is not named here takes less than ten.
set(nb_test_costs check_cuda_emu=110 test_gpu_engine=95 check=66 server_soak=53 e2e_parity_run=53 test_gpu_thrift=48
    web_page=40 server_clients=36 e2e_retrieval=35 test_promises_engine=34 server_wire=33 check_emulated=43
    test_invariance=30 e2e_plan_trace_slow=23 test_hostile_models=22 e2e_serve_api=22 e2e_bench_serve=21
    e2e_calibrate=20 web_reports=20 e2e_dummy=17 e2e_eval_ruler=17 e2e_make_hard=17 e2e_eval_kl=16 test_bundled=13
    e2e_bench_matrix=12 e2e_plan=12 e2e_bench_kernel=12 test_cascade_engine=12 test_thrift_engine=11
    test_engine_serving=10)
# The code of these is that of other tests, which a sanitizer sees.
set(nb_test_again e2e_parity_run e2e_retrieval e2e_make_hard e2e_eval_kl)
# Of the cases of the kernel checker a sanitizer sees every so many (5: all shapes and patterns come, and both
# ends of a buffer); guard pages and hashes of inputs, which it has itself, see all of them in the other builds.
set(nb_test_share "")
if(NB_SANITIZE)
    set(nb_test_share --every 5)
endif()

# nb_test_helpers(TARGET SOURCES...): compiled once; nb_objects is what a program adds to its sources.
macro(nb_test_helpers target)
    set(nb_objects "")
    if(NOT "${ARGN}" STREQUAL "")
        add_library(${target} OBJECT ${ARGN})
        nb_test_settings(${target})
        set(nb_objects "$<TARGET_OBJECTS:${target}>")
    endif()
endmacro()

# nb_test(NAME SECONDS LABELS COMMAND...)
function(nb_test name seconds labels)
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
    if(name MATCHES "slow")
        list(APPEND labels slow)
        math(EXPR seconds "${seconds} * 5")
    endif()
    if(name MATCHES "pool|thread|queue|engine")
        list(APPEND labels threads)
    endif()
    if(name IN_LIST nb_test_again)
        list(APPEND labels again)
    endif()
    set(cost ${nb_test_costs})
    list(FILTER cost INCLUDE REGEX "^${name}=")
    string(REGEX REPLACE "^.*=" "" cost "${cost}")
    if(cost STREQUAL "")
        set(cost 1)
    endif()
    math(EXPR timeout "${seconds} * ${nb_test_scale}")
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} COST ${cost}
        SKIP_RETURN_CODE 77 ENVIRONMENT "${nb_test_env}")
    math(EXPR n "${nb_test_count} + 1")
    set(nb_test_count ${n} PARENT_SCOPE)
endfunction()

function(nb_test_settings target)
    target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}/src" "${nb_test_dir}")
    target_compile_definitions(${target} PRIVATE ${nb_posix})
    target_link_libraries(${target} PRIVATE nb_flags nibble_core PkgConfig::CMOCKA)
endfunction()

# nb_test_program(TARGET SUBDIR SOURCES...): a program that sees all of src/ and tests/.
function(nb_test_program target subdir)
    add_executable(${target} ${ARGN})
    nb_test_settings(${target})
    set_target_properties(${target} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${subdir}")
endfunction()

# With libFuzzer its targets are all there is.
set(nb_kinds unit prop)
if(NB_FUZZ STREQUAL "ON")
    set(nb_kinds "")
endif()
foreach(kind IN LISTS nb_kinds)
    set(prefix_unit test_)
    set(prefix_prop prop_)
    set(labels_unit unit fast)
    set(labels_prop prop)
    file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/${kind}/*.c")
    set(helpers ${sources})
    list(FILTER sources INCLUDE REGEX "/${prefix_${kind}}[^/]*\\.c$")
    list(FILTER helpers EXCLUDE REGEX "/${prefix_${kind}}[^/]*\\.c$")
    nb_test_helpers(${kind}_helpers ${helpers})
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        nb_test_program(${name} tests/${kind} "${f}" ${nb_objects})
        nb_test(${name} 300 "${labels_${kind}}" ${name})
    endforeach()
endforeach()

file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/check/*.c")
if(sources AND nb_kinds)
    nb_test_program(nibble-check . ${sources})
    if(NB_EMULATED) # the lower levels are those of every other build
        nb_test(check_emulated 240 "check;emu" nibble-check --all-caps --from avx512)
    else()
        nb_test(check 300 check nibble-check --all-caps ${nb_test_share})
    endif()
    nb_test(check_self_test 180 check nibble-check --self-test)
    if(NB_HAVE_CUDA_EMU)
        nb_test(check_cuda_emu 400 "check;cuda" nibble-check --cuda $<TARGET_FILE:nibble-cuda-emu>
            ${nb_test_share})
        nb_test(check_cuda_self_test 180 "check;cuda" nibble-check --cuda $<TARGET_FILE:nibble-cuda-emu>
            --self-test)
        add_dependencies(nibble-check nibble-cuda-emu)
    endif()
endif()

# Libraries that the loader of the GPU library must refuse (tests/unit/test_gpu.c).
if(nb_kinds)
    foreach(k IN ITEMS 1 2 3)
        add_library(fake_gpu_${k} MODULE "${nb_test_dir}/emu/fake_gpu.c")
        target_include_directories(fake_gpu_${k} PRIVATE "${CMAKE_SOURCE_DIR}/src"
            "${CMAKE_SOURCE_DIR}/include" "${CMAKE_BINARY_DIR}/gen")
        target_compile_definitions(fake_gpu_${k} PRIVATE FAKE=${k})
        set_target_properties(fake_gpu_${k} PROPERTIES PREFIX "" OUTPUT_NAME fake${k}
            LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/fake")
        if(TARGET test_gpu)
            add_dependencies(test_gpu fake_gpu_${k})
        endif()
    endforeach()
    if(TARGET test_gpu AND NB_HAVE_CUDA_EMU)
        add_dependencies(test_gpu nibble-cuda-emu)
    endif()
endif()

# The emulation of CUDA itself; in C++, as it is.
if(NB_HAVE_CUDA_EMU AND nb_kinds)
    add_executable(test_cu_emu "${nb_test_dir}/emu/test_cu_emu.cpp" $<TARGET_OBJECTS:nb_cuda_emu_core>)
    nb_cuda_emu_settings(test_cu_emu)
    set_target_properties(test_cu_emu PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/unit")
    nb_test(test_cu_emu 60 "unit;fast;cuda" test_cu_emu)
endif()

# The emulation of AVX-512 and AMX (tests/emu): against its definitions, and against the processor where it has
# them.  emu_cases.c is compiled for both.  Not with a sanitizer, which emulated kernels do not see either:
# compiling it takes a minute then.
if(NB_HAVE_AMX AND nb_kinds AND NOT NB_SANITIZE)
    set(emu "${nb_test_dir}/emu")
    set(nb_objects "")
    set(halves emu)
    if(NOT NB_EMULATED)
        set(halves emu amx)
    endif()
    foreach(half IN LISTS halves)
        add_library(emu_on_${half} OBJECT "${emu}/emu_cases.c")
        nb_test_settings(emu_on_${half})
        target_compile_options(emu_on_${half} PRIVATE ${nb_flags_${half}} $<$<CONFIG:Debug>:-O2>)
        target_compile_definitions(emu_on_${half} PRIVATE EMU_HARDWARE=$<STREQUAL:${half},amx>)
        list(APPEND nb_objects $<TARGET_OBJECTS:emu_on_${half}>)
    endforeach()
    if(NOT NB_EMULATED)
        target_sources(emu_on_emu PRIVATE "${emu}/emu_tile.c")
    endif()
    nb_test_program(test_emu tests/unit "${emu}/test_emu.c" ${nb_objects})
    target_compile_definitions(test_emu PRIVATE EMU_WITH_HARDWARE=$<NOT:$<BOOL:${NB_EMULATE}>>)
    nb_test(test_emu 180 "unit;fast" test_emu)
endif()

file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/parity/*.c")
if(sources AND nb_kinds)
    nb_test_program(nibble-parity . ${sources})
    file(GLOB cases CONFIGURE_DEPENDS "${nb_test_dir}/parity/*/expected.safetensors")
    foreach(f IN LISTS cases)
        get_filename_component(dir "${f}" DIRECTORY)
        get_filename_component(name "${dir}" NAME)
        nb_test(parity_${name} 120 parity nibble-parity "${dir}")
    endforeach()
endif()

# Everything that needs a GPU, from this folder where it has been built with CUDA.
if(nb_kinds AND NB_HAVE_CUDA)
    nb_test(gpu 480 "gpu;slow" sh "${nb_test_dir}/gpu.sh" "${CMAKE_BINARY_DIR}")
endif()

# Targets that cannot run with failing allocations, and why.
set(nb_fuzz_no_alloc "")
if(NOT NB_FUZZ STREQUAL "OFF")
    file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/fuzz/*.c")
    set(helpers ${sources})
    list(FILTER sources INCLUDE REGEX "/fuzz_[^/]*\\.c$")
    list(FILTER helpers EXCLUDE REGEX "/fuzz_[^/]*\\.c$")
    if(NB_FUZZ STREQUAL "ON")
        list(FILTER helpers EXCLUDE REGEX "/(replay|mutate|alloc)_driver\\.c$")
    endif()
    nb_test_helpers(fuzz_helpers ${helpers})
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        string(REGEX REPLACE "^fuzz_" "" short "${name}")
        nb_test_program(${name} tests/fuzz "${f}" ${nb_objects})
        # The entry point has no header: libFuzzer declares it nowhere.
        set_source_files_properties("${f}" PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)
        set(corpus "${nb_test_dir}/fuzz/corpus/${short}")
        if(NB_FUZZ STREQUAL "ON")
            target_link_options(${name} PRIVATE -fsanitize=fuzzer)
            # What it finds goes to the first folder: not into the tree.
            set(found "${CMAKE_BINARY_DIR}/corpus/${short}")
            file(MAKE_DIRECTORY "${found}")
            nb_test(${name} 120 fuzz ${name} -runs=20000 -seed=1 -max_total_time=30
                "-artifact_prefix=${CMAKE_BINARY_DIR}/corpus/" "${found}" "${corpus}")
        else()
            target_link_options(${name} PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
                -Wl,--wrap=aligned_alloc)
            nb_test(${name} 180 "fuzz;fast" ${name} --name ${short} "${corpus}")
            if(NOT name IN_LIST nb_fuzz_no_alloc)
                nb_test(${name}_alloc 180 fuzz ${name} --name ${short} --fail-alloc 200 "${corpus}")
            endif()
            nb_test(${name}_mutate 180 fuzz ${name} --name ${short} --mutate 2000 --seed 1 "${corpus}")
        endif()
    endforeach()
endif()

file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/e2e/*.sh")
if(nb_app AND nb_kinds)
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        set(labels e2e)
        if(name STREQUAL "sources") # a new record changes the documents that are computed from it
            set(labels "e2e;fast")
        endif()
        if(NOT name MATCHES "^_") # _*.sh are sourced by the others
            nb_test(e2e_${name} 300 "${labels}" bash "${f}" "$<TARGET_FILE:nibble>" "${CMAKE_SOURCE_DIR}")
        endif()
    endforeach()
    file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/web/*.sh")
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        if(NOT name MATCHES "^_")
            nb_test(web_${name} 480 "e2e;web" bash "${f}" "$<TARGET_FILE:nibble>" "${CMAKE_SOURCE_DIR}")
        endif()
    endforeach()
    file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/server/*.sh" "${nb_test_dir}/server/*.py")
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        get_filename_component(suffix "${f}" LAST_EXT)
        set(run_.sh bash)
        set(run_.py python3)
        if(NOT name MATCHES "^_")
            nb_test(server_${name} 300 "e2e;server" ${run_${suffix}} "${f}" "$<TARGET_FILE:nibble>"
                "${CMAKE_SOURCE_DIR}")
        endif()
    endforeach()
endif()

# NbTests - tests/ is globbed: a new file with the right name is a new test.
#
#   tests/unit/test_*.c     nibble-unit test_X            labels unit fast
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
# Other .c files of unit, prop and fuzz are helpers, linked to every program of that folder.  Exit
# code 77 means skipped.  A name with `slow` gets the label slow; one with pool, thread, queue or
# engine the label threads (run under ThreadSanitizer).  The label `all` keeps a test out of ./test.sh;
# ./test.sh --all runs it (docs/testing.md).
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
set(nb_test_costs test_gpu_engine=130 check_cuda_emu=120 check=90 server_soak=53 e2e_parity_run=53 test_gpu_thrift=48
    web_page=40 web_chat=40 server_clients=36 e2e_retrieval=35 test_promises_engine=34 server_wire=33 e2e_serve_turns=30 check_emulated=43
    test_invariance=30 e2e_plan_trace_slow=23 test_hostile_models=22 e2e_serve_api=22 e2e_bench_serve=21
    e2e_calibrate=20 web_reports=20 e2e_dummy=17 e2e_eval_ruler=17 e2e_make_hard=17 e2e_eval_kl=16 test_bundled=13
    e2e_bench_matrix=12 e2e_plan=12 e2e_bench_kernel=12 test_cascade_engine=12 test_thrift_engine=11
    test_engine_serving=10 test_ranks_engine=60 test_data_ranks=55 e2e_convert_gguf_families=90)
# Tests that ./test.sh leaves to ./test.sh --all: long ones whose code other tests run too.
set(nb_test_all "^(server_soak|promises_on_ranks|server_agents_slow|e2e_plan_trace_slow|e2e_parity_run|e2e_retrieval|e2e_make_hard|e2e_eval_kl|e2e_gguf_(oracle|tokenizers)|.*_rest[0-9])$")
# Under a sanitizer they are also other whole programs than those that parse input from outside, browsers, and
# the engine on the emulated GPU.
if(NB_SANITIZE)
    set(nb_test_all "${nb_test_all}|^test_gpu_|^web_|^server_(soak|clients|page)|^e2e_")
    set(nb_test_kept "^e2e_(serve_api|cli_usage|text_commands|parity_logits)$")
endif()
# The kernel checker's cases are shared out: ./test.sh runs one of so many (odd, so that both ends of a buffer
# come), ./test.sh --all the others.  Under a sanitizer, which every case's guard pages mostly repeat,
# all of them are a fifth.
if(NB_SANITIZE)
    set(nb_test_shares 15 0 5 10)
else()
    set(nb_test_shares 3 0 1 2)
endif()

# nb_test_check(NAME SECONDS LABELS ARGUMENTS...): the first share as NAME, the others as NAME_restN.
function(nb_test_check name seconds labels)
    list(POP_FRONT nb_test_shares every)
    set(suffix "")
    set(n 0)
    foreach(first IN LISTS nb_test_shares)
        nb_test(${name}${suffix} ${seconds} "${labels}" nibble-check ${ARGN} --every ${every} --first ${first})
        math(EXPR n "${n} + 1")
        set(suffix _rest${n})
    endforeach()
    set(nb_test_count ${nb_test_count} PARENT_SCOPE)
endfunction()

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
    if(name MATCHES "${nb_test_all}" AND NOT (nb_test_kept AND name MATCHES "${nb_test_kept}"))
        list(APPEND labels all)
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

# All that the tests run, without examples and benchmarks.
add_custom_target(test-programs)
if(nb_app)
    add_dependencies(test-programs nibble)
endif()

function(nb_test_settings target)
    target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}/src" "${nb_test_dir}")
    target_compile_definitions(${target} PRIVATE ${nb_posix})
    target_link_libraries(${target} PRIVATE nb_flags nibble_hub nibble_core PkgConfig::CMOCKA)
endfunction()

# nb_test_program(TARGET SUBDIR SOURCES...): a program that sees all of src/ and tests/.
function(nb_test_program target subdir)
    add_executable(${target} ${ARGN})
    nb_test_settings(${target})
    set_target_properties(${target} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${subdir}")
    add_dependencies(test-programs ${target})
endfunction()

# With libFuzzer its targets are all there is.
set(nb_kinds unit prop)
if(NB_FUZZ STREQUAL "ON")
    set(nb_kinds "")
endif()

# tests/unit is one program, nibble-unit NAME: a hundred programs would take longer to link than to compile.
# Each file keeps its own main(), which is called NAME_main here, and runs as a test of its own.
# ThreadSanitizer gets only the files whose names say threads, the emulation of AVX-512 one test of the engine.
if(nb_kinds)
    file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/unit/*.c")
    set(helpers ${sources})
    list(FILTER sources INCLUDE REGEX "/test_[^/]*\\.c$")
    list(FILTER helpers EXCLUDE REGEX "/test_[^/]*\\.c$")
    if(NB_SANITIZE STREQUAL "thread")
        list(FILTER sources INCLUDE REGEX "/[^/]*(pool|thread|queue|engine)[^/]*$")
    elseif(NB_EMULATED)
        list(FILTER sources INCLUDE REGEX "/test_invariance\\.c$")
    endif()
    set(nb_unit_declared "")
    set(nb_unit_rows "")
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        set_source_files_properties("${f}" PROPERTIES COMPILE_DEFINITIONS "main=${name}_main"
            COMPILE_OPTIONS -Wno-missing-prototypes)
        string(APPEND nb_unit_declared "int ${name}_main();\n")
        string(APPEND nb_unit_rows "    { \"${name}\", ${name}_main },\n")
        nb_test(${name} 600 "unit;fast" nibble-unit ${name})
    endforeach()
    set(runner "${CMAKE_BINARY_DIR}/gen/nibble_unit.c")
    configure_file("${CMAKE_SOURCE_DIR}/cmake/nibble_unit.c.in" "${runner}" @ONLY)
    set_source_files_properties("${runner}" PROPERTIES COMPILE_OPTIONS
        "-Wno-strict-prototypes;-Wno-unknown-warning-option;-Wno-deprecated-non-prototype")
    nb_test_program(nibble-unit . ${sources} ${helpers} "${runner}")
    # The promises once more, where several ranks compute (tests/unit/engine_testing.h).
    nb_test(promises_on_ranks 300 unit nibble-unit test_promises_engine)
    set_property(TEST promises_on_ranks APPEND PROPERTY ENVIRONMENT NB_TEST_RANKS=2)
endif()

if(nb_kinds)
    file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/prop/*.c")
    set(helpers ${sources})
    list(FILTER sources INCLUDE REGEX "/prop_[^/]*\\.c$")
    list(FILTER helpers EXCLUDE REGEX "/prop_[^/]*\\.c$")
    nb_test_helpers(prop_helpers ${helpers})
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        nb_test_program(${name} tests/prop "${f}" ${nb_objects})
        nb_test(${name} 300 prop ${name})
    endforeach()
endif()

file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/check/*.c")
if(sources AND nb_kinds)
    nb_test_program(nibble-check . ${sources})
    if(NB_EMULATED) # the lower levels are those of every other build
        nb_test_check(check_emulated 240 "check;emu" --all-caps --from avxvnni)
    else()
        nb_test_check(check 600 check --all-caps)
    endif()
    nb_test(check_self_test 180 check nibble-check --self-test)
    if(NB_HAVE_CUDA_EMU)
        nb_test_check(check_cuda_emu 400 "check;cuda" --cuda $<TARGET_FILE:nibble-cuda-emu>)
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
        add_dependencies(nibble-unit fake_gpu_${k})
    endforeach()
    if(NB_HAVE_CUDA_EMU)
        add_dependencies(nibble-unit nibble-cuda-emu)
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
    if(NB_HAVE_AVXVNNI AND NOT NB_EMULATED) # emu_cases.c has its instructions too
        set(halves emu amx)
    endif()
    foreach(half IN LISTS halves)
        add_library(emu_on_${half} OBJECT "${emu}/emu_cases.c")
        nb_test_settings(emu_on_${half})
        target_compile_options(emu_on_${half} PRIVATE ${nb_flags_${half}} $<$<STREQUAL:${half},amx>:-mavxvnni> $<$<CONFIG:Debug>:-O2>)
        target_compile_definitions(emu_on_${half} PRIVATE EMU_HARDWARE=$<STREQUAL:${half},amx>)
        list(APPEND nb_objects $<TARGET_OBJECTS:emu_on_${half}>)
    endforeach()
    if(NOT NB_EMULATED)
        target_sources(emu_on_emu PRIVATE "${emu}/emu_tile.c")
    endif()
    nb_test_program(test_emu tests/unit "${emu}/test_emu.c" ${nb_objects})
    if("amx" IN_LIST halves)
        target_compile_definitions(test_emu PRIVATE EMU_WITH_HARDWARE=1)
    else()
        target_compile_definitions(test_emu PRIVATE EMU_WITH_HARDWARE=0)
    endif()
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

# What the models compute, as hashes; tests/hashes.sh compares two builds.
file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/hashes/*.c")
if(sources AND nb_kinds)
    nb_test_program(nibble-hashes . ${sources})
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
# The program with the model's output forced, for tests of clients, and with ranks that fail.
if(nb_app AND nb_kinds AND NOT NB_LTO)
    nb_test_program(nibble-forced . "${nb_test_dir}/server/forced.c" "${nb_test_dir}/server/rank_fault.c" $<TARGET_OBJECTS:nibble_cli>)
    target_link_libraries(nibble-forced PRIVATE nibble_cli)
    target_link_options(nibble-forced PRIVATE
        "LINKER:--wrap=nb_run_create,--wrap=nb_run_destroy,--wrap=nb_sampler_next,--wrap=nb_ranks_run")
endif()

if(nb_app AND nb_kinds)
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        set(labels e2e)
        if(name MATCHES "^(sources|report_tables)$") # a new record changes the documents that are computed from it
            set(labels "e2e;fast")
        endif()
        if(NOT name MATCHES "^_") # _*.sh are sourced by the others
            nb_test(e2e_${name} 600 "${labels}" bash "${f}" "$<TARGET_FILE:nibble>" "${CMAKE_SOURCE_DIR}")
        endif()
    endforeach()
    file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/web/*.sh")
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        if(NOT name MATCHES "^_")
            nb_test(web_${name} 900 "e2e;web" bash "${f}" "$<TARGET_FILE:nibble>" "${CMAKE_SOURCE_DIR}")
        endif()
    endforeach()
    file(GLOB sources CONFIGURE_DEPENDS "${nb_test_dir}/server/*.sh" "${nb_test_dir}/server/*.py")
    foreach(f IN LISTS sources)
        get_filename_component(name "${f}" NAME_WE)
        get_filename_component(suffix "${f}" LAST_EXT)
        set(run_.sh bash)
        set(run_.py python3)
        if(NOT name MATCHES "^_")
            nb_test(server_${name} 600 "e2e;server" ${run_${suffix}} "${f}" "$<TARGET_FILE:nibble>"
                "${CMAKE_SOURCE_DIR}")
        endif()
    endforeach()
endif()

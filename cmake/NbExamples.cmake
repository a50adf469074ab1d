# NbExamples - examples/*.c: programs that use the public header alone.
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/examples/*.c")
foreach(f IN LISTS sources)
    get_filename_component(name "${f}" NAME_WE)
    add_executable(example_${name} "${f}")
    target_link_libraries(example_${name} PRIVATE nb_flags nibble_core)
    set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/examples")
endforeach()

# The rows of kernels.def, and what a kernel's module is made from.

# kernel_target(OUTPUT ID): what a kernel's module is for. glslang takes GL_NV_cooperative_matrix2 for
# SPIR-V 1.6 alone.
function(kernel_target OUTPUT ID)
  if(${ID}_NEEDS MATCHES "NEED_MATRIX2")
    set(${OUTPUT} vulkan1.3 PARENT_SCOPE)
  else()
    set(${OUTPUT} vulkan1.1 PARENT_SCOPE)
  endif()
endfunction()

# Kernels with such a need have a prebuilt module: Debian 12's compiler lacks cooperative matrices.
set(KERNEL_PREBUILT_NEEDS "NEED_MATRIX")

# kernels_read(SHADERS): KERNEL_IDS, and <id>_FILE, <id>_DEFINES and <id>_NEEDS of each, from the
# rows of SHADERS/kernels.def.
macro(kernels_read SHADERS)
  set(KERNEL_IDS)
  file(STRINGS ${SHADERS}/kernels.def rows REGEX "^KERNEL\\(")
  foreach(row IN LISTS rows)
    if(NOT row MATCHES
       "^KERNEL\\(([a-z0-9_]+), ([a-z0-9_/]+), \"([^\"]*)\", [0-9]+, ([A-Z0-9_| ]+), [A-Z]+, [A-Z0-9_]+\\)")
      message(FATAL_ERROR "shaders/kernels.def: cannot read the row: ${row}")
    endif()
    list(APPEND KERNEL_IDS ${CMAKE_MATCH_1})
    set(${CMAKE_MATCH_1}_FILE ${CMAKE_MATCH_2}.comp)
    separate_arguments(${CMAKE_MATCH_1}_DEFINES UNIX_COMMAND "${CMAKE_MATCH_3}")
    set(${CMAKE_MATCH_1}_NEEDS "${CMAKE_MATCH_4}")
  endforeach()
endmacro()

# kernel_command(OUTPUT GLSLANG SHADERS ID SPV): the command that compiles a kernel.
function(kernel_command OUTPUT GLSLANG SHADERS ID SPV)
  kernel_target(target ${ID})
  set(${OUTPUT} ${GLSLANG} --quiet --target-env ${target} ${${ID}_DEFINES} -I${SHADERS}
                -o ${SPV} ${SHADERS}/${${ID}_FILE} PARENT_SCOPE)
endfunction()

# kernel_inputs(OUTPUT SHADERS ID): the source and all that it includes, under any defines, as paths
# from SHADERS; that is how every include is spelled.
function(kernel_inputs OUTPUT SHADERS ID)
  set(found)
  set(left ${${ID}_FILE})
  while(left)
    list(POP_FRONT left input)
    if(input IN_LIST found)
      continue()
    endif()
    list(APPEND found ${input})
    file(STRINGS ${SHADERS}/${input} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" name "${line}")
      list(APPEND left ${name})
    endforeach()
  endwhile()
  list(SORT found)
  set(${OUTPUT} ${found} PARENT_SCOPE)
endfunction()

# kernel_hash(OUTPUT SHADERS ID): the SHA-256 of target, defines and inputs.
function(kernel_hash OUTPUT SHADERS ID)
  kernel_target(target ${ID})
  set(text "target ${target}\ndefines ${${ID}_DEFINES}\nsource ${${ID}_FILE}\n")
  kernel_inputs(inputs ${SHADERS} ${ID})
  foreach(input IN LISTS inputs)
    file(SHA256 ${SHADERS}/${input} hash)
    string(APPEND text "${input} ${hash}\n")
  endforeach()
  string(SHA256 hash "${text}")
  set(${OUTPUT} ${hash} PARENT_SCOPE)
endfunction()

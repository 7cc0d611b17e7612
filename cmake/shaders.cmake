# Compiles every row of shaders/kernels.def to SPIR-V and embeds it.
#
# Output: SHADER_SPV_DIR/<id>.spv, and kernels_spv.c with one array a kernel. Dependency files make
# an edit of an include rebuild what includes it.

# -DGLSLANG=/path names another compiler: 13 or later for the kernels with cooperative matrices.
find_program(GLSLANG glslangValidator REQUIRED)
find_program(SPIRV_OPT spirv-opt)
find_program(SPIRV_VAL spirv-val)

set(SHADER_DIR ${PROJECT_SOURCE_DIR}/shaders)
set(SHADER_SPV_DIR ${PROJECT_BINARY_DIR}/shaders)
set(SHADER_C ${SHADER_SPV_DIR}/kernels_spv.c)
file(MAKE_DIRECTORY ${SHADER_SPV_DIR})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${SHADER_DIR}/kernels.def)

# glslang_knows(VAR EXTENSION): whether the shader compiler has a GLSL extension.
function(glslang_knows VAR EXTENSION)
  set(probe ${SHADER_SPV_DIR}/probe.comp)
  file(WRITE ${probe} "#version 450\n#extension ${EXTENSION} : require\nvoid main() {}\n")
  execute_process(COMMAND ${GLSLANG} --quiet --target-env vulkan1.1 -o ${probe}.spv ${probe}
                  RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
  if(result EQUAL 0)
    set(${VAR} ON PARENT_SCOPE)
  else()
    set(${VAR} OFF PARENT_SCOPE)
    message(STATUS "${GLSLANG} lacks ${EXTENSION}: kernels that need it are left out")
  endif()
endfunction()
glslang_knows(HAS_MATRIX GL_KHR_cooperative_matrix)
glslang_knows(HAS_BFLOAT16 GL_EXT_bfloat16)

set(KERNEL_IDS)
set(KERNEL_IDS_LEFT_OUT)
set(KERNEL_SPVS)
file(STRINGS ${SHADER_DIR}/kernels.def rows REGEX "^KERNEL\\(")
foreach(row IN LISTS rows)
  if(NOT row MATCHES "^KERNEL\\(([a-z0-9_]+), ([a-z0-9_]+), \"([^\"]*)\", [0-9]+, ([A-Z0-9_| ]+)\\)")
    message(FATAL_ERROR "shaders/kernels.def: cannot read the row: ${row}")
  endif()
  set(id ${CMAKE_MATCH_1})
  set(source ${SHADER_DIR}/${CMAKE_MATCH_2}.comp)
  separate_arguments(defines UNIX_COMMAND "${CMAKE_MATCH_3}")
  set(needs "${CMAKE_MATCH_4}")
  if((needs MATCHES "NEED_MATRIX" AND NOT HAS_MATRIX) OR
     (needs MATCHES "NEED_MATRIX_BF16" AND NOT HAS_BFLOAT16))
    list(APPEND KERNEL_IDS_LEFT_OUT ${id})
    continue()
  endif()
  set(spv ${SHADER_SPV_DIR}/${id}.spv)
  set(optimize)
  if(SPIRV_OPT AND NOT needs MATCHES "NEED_MATRIX") # old ones know no cooperative matrices
    set(optimize COMMAND ${SPIRV_OPT} -O ${spv} -o ${spv})
  endif()
  add_custom_command(
    OUTPUT ${spv}
    COMMAND ${GLSLANG} --quiet --target-env vulkan1.1 ${defines} -I${SHADER_DIR}
            --depfile ${spv}.d -o ${spv} ${source}
    ${optimize}
    DEPENDS ${source}
    DEPFILE ${spv}.d
    COMMENT "Compiling kernel ${id}"
    VERBATIM)
  list(APPEND KERNEL_IDS ${id})
  list(APPEND KERNEL_SPVS ${spv})
endforeach()

add_custom_command(
  OUTPUT ${SHADER_C}
  COMMAND ${CMAKE_COMMAND} "-DIDS=${KERNEL_IDS}" "-DLEFT_OUT=${KERNEL_IDS_LEFT_OUT}" -DDIR=${SHADER_SPV_DIR} -DOUT=${SHADER_C}
          -P ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
  DEPENDS ${KERNEL_SPVS} ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
  COMMENT "Embedding SPIR-V"
  VERBATIM)
add_custom_target(vkattn_spv DEPENDS ${SHADER_C})

# Compiles every row of shaders/kernels.def to SPIR-V and embeds it; takes the prebuilt module where
# the compiler lacks an extension.
#
# Output: SHADER_SPV_DIR/<id>.spv, and kernels_spv.c, which takes each in. Dependency files make
# an edit of an include rebuild what includes it. With VKATTN_SPIRV_FROM nothing is compiled.

include(${CMAKE_CURRENT_LIST_DIR}/kernels.cmake)

# -DGLSLANG=/path names another compiler.
find_program(GLSLANG glslangValidator REQUIRED)
find_program(SPIRV_OPT spirv-opt)
find_program(SPIRV_VAL spirv-val)

# Several builds of the same sources need only compile them once.
set(VKATTN_SPIRV_FROM "$ENV{VKATTN_SPIRV_FROM}" CACHE PATH
    "SPIR-V that another build of these sources made: its folder shaders; else it is compiled")

set(SHADER_DIR ${PROJECT_SOURCE_DIR}/shaders)
set(SHADER_SPV_DIR ${PROJECT_BINARY_DIR}/shaders)
set(SHADER_C ${SHADER_SPV_DIR}/kernels_spv.c)
file(MAKE_DIRECTORY ${SHADER_SPV_DIR})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${SHADER_DIR}/kernels.def)

# glslang_knows(VAR EXTENSION): whether the shader compiler has a GLSL extension.
function(glslang_knows VAR EXTENSION)
  set(probe ${SHADER_SPV_DIR}/probe.comp)
  file(WRITE ${probe} "#version 450\n#extension ${EXTENSION} : require\nvoid main() {}\n")
  execute_process(COMMAND ${GLSLANG} --quiet --target-env vulkan1.3 -o ${probe}.spv ${probe}
                  RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
  if(result EQUAL 0)
    set(${VAR} ON PARENT_SCOPE)
  else()
    set(${VAR} OFF PARENT_SCOPE)
    message(STATUS "${GLSLANG} lacks ${EXTENSION}: shaders/prebuilt has the kernels with it")
  endif()
endfunction()
glslang_knows(HAS_MATRIX GL_KHR_cooperative_matrix)
glslang_knows(HAS_MATRIX2 GL_NV_cooperative_matrix2)
glslang_knows(HAS_MATRIX_EXT GL_EXT_cooperative_matrix_maintenance1)
glslang_knows(HAS_BFLOAT16 GL_EXT_bfloat16)

kernels_read(${SHADER_DIR})
set(KERNEL_SPVS)
set(KERNELS_PREBUILT)
foreach(id IN LISTS KERNEL_IDS)
  set(spv ${SHADER_SPV_DIR}/${id}.spv)
  list(APPEND KERNEL_SPVS ${spv})
  set(lacking OFF)
  if((${id}_NEEDS MATCHES "NEED_MATRIX" AND NOT HAS_MATRIX) OR
     (${id}_NEEDS MATCHES "NEED_MATRIX2" AND NOT HAS_MATRIX2) OR
     (${id}_NEEDS MATCHES "NEED_MATRIX_EXT" AND NOT HAS_MATRIX_EXT) OR
     (${id}_NEEDS MATCHES "NEED_MATRIX(2|_EXT)?_BF16" AND NOT HAS_BFLOAT16))
    set(lacking ON)
    list(APPEND KERNELS_PREBUILT ${id})
  endif()
  if(VKATTN_SPIRV_FROM)
    add_custom_command(
      OUTPUT ${spv}
      COMMAND ${CMAKE_COMMAND} -E copy ${VKATTN_SPIRV_FROM}/${id}.spv ${spv}
      DEPENDS ${VKATTN_SPIRV_FROM}/${id}.spv
      COMMENT "Taking kernel ${id}"
      VERBATIM)
    continue()
  elseif(lacking)
    set(take ${CMAKE_CURRENT_LIST_DIR}/take_prebuilt.cmake)
    add_custom_command(
      OUTPUT ${spv}
      COMMAND ${CMAKE_COMMAND} -DSHADERS=${SHADER_DIR} -DID=${id} -DOUT=${spv} -P ${take}
      DEPENDS ${SHADER_DIR}/kernels.def ${SHADER_DIR}/prebuilt/manifest.txt ${take}
              ${CMAKE_CURRENT_LIST_DIR}/kernels.cmake
      DEPFILE ${spv}.d
      COMMENT "Taking the prebuilt kernel ${id}"
      VERBATIM)
    continue()
  endif()
  kernel_command(compile ${GLSLANG} ${SHADER_DIR} ${id} ${spv})
  set(optimize)
  if(SPIRV_OPT AND NOT ${id}_NEEDS MATCHES "NEED_MATRIX|NEED_MIXED_DOT") # old ones know neither
    set(optimize COMMAND ${SPIRV_OPT} -O ${spv} -o ${spv})
  endif()
  add_custom_command(
    OUTPUT ${spv}
    COMMAND ${compile} --depfile ${spv}.d
    ${optimize}
    DEPENDS ${SHADER_DIR}/${${id}_FILE}
    DEPFILE ${spv}.d
    COMMENT "Compiling kernel ${id}"
    VERBATIM)
endforeach()

add_custom_command(
  OUTPUT ${SHADER_C}
  COMMAND ${CMAKE_COMMAND} "-DIDS=${KERNEL_IDS}" -DDIR=${SHADER_SPV_DIR} -DOUT=${SHADER_C}
          -P ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
  DEPENDS ${KERNEL_SPVS} ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
  COMMENT "Embedding SPIR-V"
  VERBATIM)
add_custom_target(vkattn_spv DEPENDS ${SHADER_C})

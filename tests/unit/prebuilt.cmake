# cmake -DSOURCE=root -DWORK=folder -DGENERATOR=name -DGLSLANG=program -P prebuilt.cmake
# Checks that shaders/prebuilt was made from the sources as they are, and that a build which takes
# it fails when it was not: changes a copy of the shaders in WORK between two builds of one folder.
# The compiler there is GLSLANG behind a script that lacks every extension.
cmake_minimum_required(VERSION 3.25)
set(COMMAND_TOLD "tools/dev/prebuild_shaders.sh /path/to/glslangValidator")

function(check_all WANT WHAT)
  execute_process(COMMAND ${CMAKE_COMMAND} -DSHADERS=${ARGN} -P ${SOURCE}/cmake/take_prebuilt.cmake
                  RESULT_VARIABLE result ERROR_VARIABLE text OUTPUT_VARIABLE text)
  judge("${WANT}" "${WHAT}" "${result}" "${text}")
endfunction()

# judge(WANT WHAT RESULT TEXT): WANT is "" for success, or the kernel that TEXT calls stale.
function(judge WANT WHAT RESULT TEXT)
  if(WANT STREQUAL "" AND NOT RESULT EQUAL 0)
    message(FATAL_ERROR "${WHAT}: refused:\n${TEXT}")
  endif()
  if(NOT WANT STREQUAL "" AND (RESULT EQUAL 0 OR NOT TEXT MATCHES "${WANT}" OR
                               NOT TEXT MATCHES "${COMMAND_TOLD}"))
    message(FATAL_ERROR "${WHAT}: not refused with ${WANT} and a command:\n${TEXT}")
  endif()
endfunction()

function(build WANT WHAT)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build
                  RESULT_VARIABLE result ERROR_VARIABLE text OUTPUT_VARIABLE text)
  judge("${WANT}" "${WHAT}" "${result}" "${text}")
endfunction()

# change(FILE FROM TO): writes WORK/shaders/FILE, as in SOURCE but with FROM replaced by TO.
function(change FILE FROM TO)
  file(READ ${SOURCE}/shaders/${FILE} old)
  string(REPLACE "${FROM}" "${TO}" new "${old}")
  if(new STREQUAL old)
    message(FATAL_ERROR "shaders/${FILE} has no '${FROM}'")
  endif()
  file(WRITE ${WORK}/shaders/${FILE} "${new}")
endfunction()

function(restore FILE)
  file(READ ${SOURCE}/shaders/${FILE} old)
  file(WRITE ${WORK}/shaders/${FILE} "${old}")
endfunction()

check_all("" "the modules of this tree" ${SOURCE}/shaders)

file(REMOVE_RECURSE ${WORK})
file(COPY ${SOURCE}/shaders DESTINATION ${WORK})
check_all("" "a copy" ${WORK}/shaders)
change(kernels.def "\"-DBFLOAT16\"" "\"-DBFLOAT16 -DMORE\"")
check_all("matmul_coop_bf16, attention_coop_bf16, attention_coop2_bf16" "other defines" ${WORK}/shaders)
restore(kernels.def)
change(prebuilt/manifest.txt "compiler Glslang Version: " "compiler Glslang Version: 9")
check_all("" "another compiler" ${WORK}/shaders)
restore(prebuilt/manifest.txt)
file(COPY_FILE ${SOURCE}/shaders/prebuilt/matmul_coop_f16.spv
               ${WORK}/shaders/prebuilt/attention_coop_f16.spv)
check_all("attention_coop_f16" "another module" ${WORK}/shaders)
file(COPY_FILE ${SOURCE}/shaders/prebuilt/attention_coop_f16.spv
               ${WORK}/shaders/prebuilt/attention_coop_f16.spv)

# A build of these kernels alone.
file(STRINGS ${SOURCE}/shaders/kernels.def rows REGEX "^KERNEL\\(.*NEED_MATRIX")
list(JOIN rows "\n" rows)
file(WRITE ${WORK}/shaders/kernels.def "${rows}\n")
file(WRITE ${WORK}/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(prebuilt NONE)
include(\"${SOURCE}/cmake/shaders.cmake\")
add_custom_target(all_kernels ALL DEPENDS vkattn_spv)\n")
file(WRITE ${WORK}/compiler "#!/bin/sh\nfor last; do :; done\n\
case $last in */probe.comp) exit 1 ;; esac\nexec \"${GLSLANG}\" \"$@\"\n")
file(CHMOD ${WORK}/compiler PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK} -B ${WORK}/build -G ${GENERATOR}
                        -DGLSLANG=${WORK}/compiler -DVKATTN_SPIRV_FROM=
                        OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
build("" "a new folder")
file(SHA256 ${SOURCE}/shaders/prebuilt/attention_coop_f16.spv want)
file(SHA256 ${WORK}/build/shaders/attention_coop_f16.spv have)
if(NOT have STREQUAL want)
  message(FATAL_ERROR "the module that was built is not the prebuilt one")
endif()
change(lib/keys.glsl "// " "// A comment. ") # through lib/tile.glsl
build("attention_coop2?_[a-z0-9]+" "an include of an include")
build("attention_coop2?_[a-z0-9]+" "the same once more")
restore(lib/keys.glsl)
build("" "all as it was")

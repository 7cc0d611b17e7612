# Hardening of everything that an optimised build makes: checks of stacks and of buffers' sizes,
# tables of functions that are read-only once they are bound, executables at any address, and where
# the processor has it, jumps and returns to where they belong.
#
# On Windows only addresses and what is executable: MinGW's other checks need a library of their own
# in every program that links a static one of ours.
if(WIN32)
  add_link_options(-Wl,--dynamicbase,--high-entropy-va,--nxcompat)
  return()
endif()
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
check_c_compiler_flag(-fstack-protector-strong HAS_STACK_PROTECTOR)
check_c_compiler_flag(-fcf-protection HAS_CF_PROTECTION)                  # x86
check_c_compiler_flag(-mbranch-protection=standard HAS_BRANCH_PROTECTION) # arm64

set(optimised $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
set(flags $<$<COMPILE_LANGUAGE:C>:-U_FORTIFY_SOURCE> $<$<COMPILE_LANGUAGE:C>:-D_FORTIFY_SOURCE=2>)
if(HAS_STACK_PROTECTOR)
  list(APPEND flags -fstack-protector-strong)
endif()
if(HAS_CF_PROTECTION)
  list(APPEND flags -fcf-protection)
elseif(HAS_BRANCH_PROTECTION)
  list(APPEND flags -mbranch-protection=standard)
endif()
foreach(flag IN LISTS flags)
  add_compile_options($<${optimised}:${flag}>)
endforeach()
if(NOT APPLE) # whose linker makes such tables read-only by itself
  add_link_options($<${optimised}:-Wl,-z,relro> $<${optimised}:-Wl,-z,now>)
endif()

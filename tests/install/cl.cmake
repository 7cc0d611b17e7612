# Public headers as Microsoft's compiler sees them: clang in its place, in C11 and C++17, all warnings
# errors. The system's headers are those that clang brings, and Vulkan's.
#
#   cmake -D CLANG=clang -D HEADERS=a.h,b.h -D INCLUDE=folder -D VULKAN=folder -D WORK=folder
#         -P cl.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/include)
foreach(folder vulkan vk_video) # and nothing else of /usr/include
  file(CREATE_LINK ${VULKAN}/${folder} ${WORK}/include/${folder} SYMBOLIC)
endforeach()
string(REPLACE "," ";" HEADERS "${HEADERS}")
foreach(header IN LISTS HEADERS)
  foreach(language /TC /TP)
    set(standard /std:c11)
    if(language STREQUAL /TP)
      set(standard /std:c++17)
    endif()
    file(WRITE ${WORK}/header.c "#include <vkattn/${header}>\n")
    execute_process(
      COMMAND ${CLANG} --driver-mode=cl --target=x86_64-pc-windows-msvc -fsyntax-only -X ${standard}
              /W4 /WX -Wno-unused-command-line-argument /I${INCLUDE} /imsvc${WORK}/include
              ${language} -- ${WORK}/header.c
      RESULT_VARIABLE result ERROR_VARIABLE text OUTPUT_VARIABLE text)
    if(NOT result EQUAL 0)
      message(SEND_ERROR "${header}, ${standard}:\n${text}")
    endif()
  endforeach()
endforeach()

# What has to fail does.
file(WRITE ${WORK}/wrong.c "#include <vkattn/vkattn.h>\nint wrong = vka_status_name;\n")
execute_process(
  COMMAND ${CLANG} --driver-mode=cl --target=x86_64-pc-windows-msvc -fsyntax-only -X /std:c11 /W4 /WX
          -Wno-unused-command-line-argument /I${INCLUDE} /TC ${WORK}/wrong.c
  RESULT_VARIABLE result ERROR_QUIET OUTPUT_QUIET)
if(result EQUAL 0)
  message(SEND_ERROR "a wrong program passes")
endif()

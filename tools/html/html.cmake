# Style sheets and scripts are files of their own to edit and characters in the program to ship:
# embed_text(TARGET FILE SYMBOL) gives TARGET the zero-ended array that html/texts.h declares.
function(embed_text TARGET FILE SYMBOL)
  file(READ ${FILE} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1', " bytes "${bytes}")
  string(REGEX REPLACE "(('[^']*', ){16})" "\\1\n" bytes "${bytes}")
  file(CONFIGURE OUTPUT ${SYMBOL}.c @ONLY
       CONTENT "#include \"html/texts.h\"\n\nconst char @SYMBOL@[] = {\n@bytes@0};\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${FILE})
  target_sources(${TARGET} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${SYMBOL}.c)
endfunction()

add_library(vkattn_html STATIC html/html.c)
embed_text(vkattn_html html/base.css base_css)
embed_text(vkattn_html html/base.js base_js)
target_include_directories(vkattn_html PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(vkattn_html PUBLIC PkgConfig::JANSSON
                                  PRIVATE vkattn_io vkattn_options m)

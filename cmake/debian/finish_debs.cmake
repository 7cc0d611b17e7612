# What cpack cannot be told: takes the scripts out that call ldconfig beside the trigger. Run by cpack when the
# packages are made; their bytes depend on SOURCE_DATE_EPOCH and the files alone.
foreach(package IN LISTS CPACK_PACKAGE_FILES)
  cmake_path(GET package PARENT_PATH folder)
  set(tree ${folder}/finish_deb)
  file(REMOVE_RECURSE ${tree})
  execute_process(COMMAND dpkg-deb --raw-extract ${package} ${tree} COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE ${tree}/DEBIAN/postinst ${tree}/DEBIAN/postrm)
  execute_process(COMMAND dpkg-deb --root-owner-group -Zxz --build ${tree} ${package}
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE_RECURSE ${tree})
endforeach()

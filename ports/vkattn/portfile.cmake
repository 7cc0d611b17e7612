# An overlay port of vcpkg: builds the tree that it lies in, without the commands.
#
#   vcpkg install vkattn --overlay-ports=/path/to/vkattn/ports
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../.." ABSOLUTE)
set(VCPKG_POLICY_DLLS_IN_STATIC_LIBRARY enabled) # there are both, as targets of their own

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DVKATTN_BUILD_TESTS=OFF
    -DVKATTN_BUILD_TOOLS=OFF
    -DVKATTN_BUILD_MPI=OFF
    "-DGLSLANG=${CURRENT_HOST_INSTALLED_DIR}/tools/glslang/glslangValidator${VCPKG_HOST_EXECUTABLE_SUFFIX}"
    "-DSPIRV_OPT=${CURRENT_HOST_INSTALLED_DIR}/tools/spirv-tools/spirv-opt${VCPKG_HOST_EXECUTABLE_SUFFIX}"
    "-DSPIRV_VAL=${CURRENT_HOST_INSTALLED_DIR}/tools/spirv-tools/spirv-val${VCPKG_HOST_EXECUTABLE_SUFFIX}")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/vkattn)
vcpkg_fixup_pkgconfig()

vcpkg_install_copyright(FILE_LIST "${CURRENT_PACKAGES_DIR}/share/doc/vkattn/copyright")
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc" "${CURRENT_PACKAGES_DIR}/debug/include"
                    "${CURRENT_PACKAGES_DIR}/debug/share")

/* Preloaded into the tests of the asan preset: modules stay in memory when they are closed. The
 * Vulkan loader unloads drivers with the last instance, and then what a driver holds in its static
 * data counts as leaked, in a module that is gone and that no suppression can name. */
int dlclose(void *module);

int dlclose(void *module)
{
    (void)module;
    return 0;
}

/* vkattn.hpp: who owns what, what errors say, what infos hold, each method once. Exits 77 where there is
 * no device. */
#include <vkattn/vkattn.hpp>

#include <cstdlib>
#include <iostream>
#include <type_traits>

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            std::cerr << __FILE__ << ':' << __LINE__ << ": " << #condition << '\n'; \
            std::exit(1);                                                           \
        }                                                                           \
    } while (0)

template <class T>
constexpr bool only_moves =
    std::is_nothrow_move_constructible_v<T> &&std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(only_moves<vka::device> && only_moves<vka::tensor> && only_moves<vka::layer> &&
              only_moves<vka::plan> && only_moves<vka::cache>);

/* refused(ACTION): what the exception says, which has to have this status. */
template <class Action> static std::string refused(vka_status status, Action action)
{
    try {
        action();
    } catch (const vka::error &error) {
        CHECK(error.status() == status);
        return error.what();
    }
    std::cerr << "nothing was thrown\n";
    std::exit(1);
}

static bool has(const std::string &text, const char *slice)
{
    return text.find(slice) != std::string::npos;
}

static void test_errors(vka_device *device)
{
    vka::info<vka_device_info> other;
    other.device = "there is no device of this name";
    CHECK(has(refused(VKA_NO_DEVICE, [&] { vka::device::create(other); }), other.device));
    vka::tensor x = vka::tensor::create(device, VKA_F32, {2, 3});
    std::string said = refused(VKA_INVALID, [&] { x.write(std::vector<float>(5)); });
    CHECK(has(said, "VKA_INVALID: ") && has(said, "20") && has(said, "24"));
    said = refused(VKA_INVALID, [&] { vka::tensor::create(device, VKA_F32, {1, 1, 1, 1, 1}); });
    CHECK(has(said, "rank"));
    CHECK(has(refused(VKA_INVALID, [&] { x.permute({0}); }), "axes"));
    CHECK(has(refused(VKA_INVALID, [&] { x.strided(0, {2, 3}, {1}); }), "strides"));
    vka::plan plan = vka::plan::create(device);
    vka::info<vka_linear_op> op;
    op.output = x;
    CHECK(has(refused(VKA_INVALID, [&] { plan.add(op); }), "input"));
    refused(VKA_INVALID, [&] { plan.run(); }); /* it is not finished */
    refused(VKA_INVALID, [] { vka::tensor().write(std::vector<float>{1}); });
}

static void test_ownership(vka_device *device)
{
    vka::tensor x = vka::tensor::create(device, VKA_F32, {2, 3});
    vka_tensor *object = x;
    vka::tensor y = std::move(x);
    CHECK(x.get() == nullptr && y.get() == object);
    y.write(std::vector<float>{0, 1, 2, 3, 4, 5});
    x = y.permute({1, 0});
    CHECK(x.shape(0) == 3 && x.shape(1) == 2 && x.rank() == 2 && x.dtype() == VKA_F32);
    CHECK((x.read<float>() == std::vector<float>{0, 3, 1, 4, 2, 5}));
    CHECK((y.slice(1, 1, 2).read<float>() == std::vector<float>{1, 2, 4, 5}));
    CHECK(y.reshape({6}).shape(0) == 6 && y.count() == 6 && y.size() == 24);
    CHECK((y.strided(1, {2}, {3}).read<float>() == std::vector<float>{1, 4}));
    y = vka::tensor(); /* the view keeps the elements */
    CHECK((x.read<float>() == std::vector<float>{0, 3, 1, 4, 2, 5}));
    vka::tensor &same = x;
    x = std::move(same);
    CHECK(x.get() != nullptr);
    object = x.release();
    CHECK(x.get() == nullptr);
    vka_tensor_destroy(&object);
    vka::check(vka_tensor_create(device, VKA_I32, 1, std::vector<uint32_t>{4}.data(), x.put()),
               device);
    CHECK(x.dtype() == VKA_I32);
}

/* A layer with a cache, whose output is its value bias: its key weights are 0. */
static void test_layer(vka_device *device)
{
    const std::vector<float> zeros(4), bias{3, 5};
    vka::info<vka_layer_info> of_layer;
    CHECK(of_layer.struct_size == sizeof(vka_layer_info) && of_layer.n_head == 0 &&
          of_layer.query.weight == nullptr && !of_layer.keep_weights);
    of_layer.n_head = 1;
    of_layer.head_dim = of_layer.query_dim = 2;
    of_layer.query.weight = of_layer.key.weight = of_layer.value.weight = zeros.data();
    of_layer.value.bias = bias.data();
    vka::layer layer = vka::layer::create(device, of_layer);
    vka::info<vka_cache_info> of_cache;
    of_cache.batch = of_cache.n_kv_head = 1;
    of_cache.head_dim = 2;
    of_cache.capacity = 32;
    vka::cache cache = vka::cache::create(device, of_cache);
    vka::tensor x = vka::tensor::create(device, VKA_F32, {1, 1, 2});
    vka::tensor y = vka::tensor::create(device, VKA_F32, {1, 1, 2});
    vka::info<vka_layer_op> op;
    op.layer = layer;
    op.query = x;
    op.output = y;
    op.cache = cache;
    op.attention.causal = true;
    vka::plan plan = vka::plan::create(device);
    plan.add(op);
    plan.finish();
    CHECK(has(plan.describe(), "\n") && plan.workspace() > 0);
    x.write(std::vector<float>{1, 2});
    plan.run();
    plan.wait(plan.submit());
    CHECK(y.read<float>() == bias && cache.length(0) == 2);
    cache.truncate(0, 1);
    CHECK(cache.length(0) == 1);
    CHECK(has(refused(VKA_INVALID, [&] { cache.fork(0, 1); }), "1"));
    refused(VKA_INVALID, [&] { cache.set_pages(0, 0, {0}); }); /* it has no pages */
}

static void run()
{
    vka::device first = vka::device::create(), device;
    CHECK(device.get() == nullptr && first.properties().name[0] != '\0');
    device = std::move(first);
    CHECK(!device.pipeline_cache().empty());
    refused(VKA_INVALID, [&] { device.recover(); }); /* it is not lost */
    test_errors(device);
    test_ownership(device);
    test_layer(device);
    std::cout << "passed\n";
}

int main()
{
    try {
        run();
    } catch (const vka::error &error) {
        std::cerr << error.what() << '\n';
        return error.status() == VKA_NO_DEVICE ? 77 : 1;
    }
}

/* vkattn for C++17: handles that own, infos with defaults, errors as exceptions.
 * SPDX-License-Identifier: MIT
 *
 *     vka::device device = vka::device::create();
 *     vka::tensor x = vka::tensor::create(device, VKA_F32, {1, 1, 4, 1});
 *     vka::tensor y = vka::tensor::create(device, VKA_F32, {1, 1, 4, 1});
 *     vka::info<vka_attention_op> op;
 *     op.q = op.k = op.v = x;
 *     op.output = y;
 *     op.options.causal = true;
 *     vka::plan plan = vka::plan::create(device);
 *     plan.add(op);
 *     plan.finish();
 *     x.write(std::vector<float>{0, 1, 2, 3});
 *     plan.run();
 *     std::vector<float> result = y.read<float>();
 *
 * Everything is inline over the C functions, whose headers are the manual: structs, enums and the
 * meaning of each function are theirs. A handle is moved, not copied; it destroys its object, and
 * converts to the C pointer, so that every C function takes it. Declare a device before what is made
 * from it, as it has to be destroyed last. examples/cpp.cpp is a program.
 *
 * A status other than VKA_OK is thrown as vka::error. Without exceptions (-fno-exceptions) the
 * handles and infos remain: `vka_tensor_create(device, ..., tensor.put())` fills a handle. That is
 * also how functions that have no method here are called, such as vka_device_adopt; vka::check
 * throws what they return.
 */
#ifndef VKATTN_HPP
#define VKATTN_HPP

#include <vkattn/vkattn.h>
#include <vkattn/vkattn_model.h>
#include <vkattn/vkattn_train.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace vka
{

/* An info or op struct with struct_size filled in and every other field 0. */
template <class T> struct info : T {
    info() noexcept : T{}
    {
        this->struct_size = sizeof(T);
    }
};

/* Owns an object of the library. Empty at first, and after it was moved from. */
template <class T, void (*Destroy)(T **)> class handle
{
  public:
    handle() noexcept = default;
    handle(handle &&other) noexcept : object(other.release())
    {
    }
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other)
            *put() = other.release();
        return *this;
    }
    ~handle()
    {
        Destroy(&object);
    }

    operator T *() const noexcept
    {
        return object;
    }
    T *get() const noexcept
    {
        return object;
    }

    /* Destroys what it owns; the address for a function that makes an object. */
    T **put() noexcept
    {
        Destroy(&object);
        return &object;
    }

    /* Gives up what it owned, for the caller to destroy. */
    T *release() noexcept
    {
        return std::exchange(object, nullptr);
    }

  private:
    T *object = nullptr;
};

using device_handle = handle<vka_device, vka_device_destroy>;
using tensor_handle = handle<vka_tensor, vka_tensor_destroy>;
using layer_handle = handle<vka_layer, vka_layer_destroy>;
using plan_handle = handle<vka_plan, vka_plan_destroy>;
using cache_handle = handle<vka_cache, vka_cache_destroy>;

#if defined(__cpp_exceptions) || defined(_CPPUNWIND)

/* A status that is not VKA_OK. what() is its name and the sentence that says why. */
class error : public std::runtime_error
{
  public:
    error(vka_status status, const std::string &why)
        : std::runtime_error(std::string(vka_status_name(status)) + ": " + why), code(status)
    {
    }
    vka_status status() const noexcept
    {
        return code;
    }

  private:
    vka_status code;
};

/* Throws a status other than VKA_OK, with the sentence of the device. */
inline void check(vka_status status, const vka_device *device)
{
    if (status != VKA_OK)
        throw error(status, device ? vka_device_error(device) : "there is no device to say why");
}

class device : public device_handle
{
  public:
    using device_handle::device_handle;

    static device create()
    {
        return create(info<vka_device_info>());
    }

    /* Where the info has no log, the error has the sentence that the log would have had. */
    static device create(vka_device_info given)
    {
        sentence why = {"the log says why"};
        if (!given.log) {
            given.log = keep;
            current() = &why;
        }
        device made;
        vka_status status = vka_device_create(&given, made.put());
        current() = nullptr;
        if (status != VKA_OK)
            throw error(status, why.text);
        return made;
    }

    const struct vka_device_properties &properties() const
    {
        return *::vka_device_properties(get());
    }

    void recover()
    {
        vka::check(vka_device_recover(get()), get());
    }
    void self_test()
    {
        vka::check(vka_device_self_test(get()), get());
    }

    /* For vka_device_info::pipeline_cache of a later device. */
    std::vector<unsigned char> pipeline_cache() const
    {
        size_t size = 0;
        vka::check(vka_device_pipeline_cache(get(), nullptr, &size), get());
        std::vector<unsigned char> blob(size);
        vka::check(vka_device_pipeline_cache(get(), blob.data(), &size), get());
        blob.resize(size);
        return blob;
    }

  private:
    struct sentence {
        char text[1024];
    };

    /* The sentence that a device being created in this thread fills in; the device keeps `keep` as
     * its log, which then does nothing. */
    static sentence *&current() noexcept
    {
        static thread_local sentence *at = nullptr;
        return at;
    }
    static void keep(void *, vka_log_level level, const char *message)
    {
        if (current() && level == VKA_LOG_ERROR)
            std::snprintf(current()->text, sizeof current()->text, "%s", message);
    }
};

/* What is made from a device, which has the sentences of its errors. */
template <class Handle> class child : public Handle
{
  public:
    child() noexcept = default;
    explicit child(vka_device *device) noexcept : owner(device)
    {
    }

  protected:
    void check(vka_status status) const
    {
        vka::check(status, owner);
    }
    vka_device *owner = nullptr;
};

class tensor : public child<tensor_handle>
{
  public:
    using child::child;
    using shape_type = std::vector<uint32_t>;

    static tensor create(vka_device *device, vka_dtype dtype, const shape_type &shape)
    {
        tensor made(device);
        made.check(vka_tensor_create(device, dtype, rank_of(shape), shape.data(), made.put()));
        return made;
    }

    /* Views, which share the elements. */
    tensor permute(const shape_type &axes) const
    {
        tensor view(owner);
        if (axes.size() != rank())
            throw error(VKA_INVALID, "axes: expected as many as the tensor has");
        check(vka_tensor_permute(get(), axes.data(), view.put()));
        return view;
    }
    tensor slice(uint32_t axis, uint32_t first, uint32_t count) const
    {
        tensor view(owner);
        check(vka_tensor_slice(get(), axis, first, count, view.put()));
        return view;
    }
    tensor reshape(const shape_type &shape) const
    {
        tensor view(owner);
        check(vka_tensor_reshape(get(), rank_of(shape), shape.data(), view.put()));
        return view;
    }
    tensor strided(uint64_t offset, const shape_type &shape,
                   const std::vector<uint64_t> &strides) const
    {
        tensor view(owner);
        if (strides.size() != shape.size())
            throw error(VKA_INVALID, "strides: expected as many as the shape has axes");
        check(vka_tensor_strided(get(), offset, rank_of(shape), shape.data(), strides.data(),
                                 view.put()));
        return view;
    }

    vka_dtype dtype() const
    {
        return vka_tensor_dtype(get());
    }
    uint32_t rank() const
    {
        return vka_tensor_rank(get());
    }
    uint32_t shape(uint32_t axis) const
    {
        return vka_tensor_shape(get(), axis);
    }
    uint64_t count() const
    {
        return vka_tensor_count(get());
    }
    size_t size() const
    {
        return vka_tensor_size(get());
    }

    /* Copy all elements. A vector's elements have the bytes of the tensor's. */
    void write(const void *data, size_t size)
    {
        check(vka_tensor_write(get(), data, size));
    }
    void read(void *data, size_t size) const
    {
        check(vka_tensor_read(get(), data, size));
    }
    template <class T> void write(const std::vector<T> &data)
    {
        write(data.data(), data.size() * sizeof(T));
    }
    template <class T> std::vector<T> read() const
    {
        std::vector<T> data(size() / sizeof(T));
        read(data.data(), data.size() * sizeof(T));
        return data;
    }

  private:
    static uint32_t rank_of(const shape_type &shape)
    {
        return static_cast<uint32_t>(shape.size());
    }
};

class layer : public child<layer_handle>
{
  public:
    using child::child;

    static layer create(vka_device *device, const vka_layer_info &given)
    {
        layer made(device);
        made.check(vka_layer_create(device, &given, made.put()));
        return made;
    }
};

class cache : public child<cache_handle>
{
  public:
    using child::child;

    static cache create(vka_device *device, const vka_cache_info &given)
    {
        cache made(device);
        made.check(vka_cache_create(device, &given, made.put()));
        return made;
    }

    uint32_t length(uint32_t sequence) const
    {
        uint32_t n = 0;
        check(vka_cache_length(get(), sequence, &n));
        return n;
    }
    void truncate(uint32_t sequence, uint32_t n)
    {
        check(vka_cache_truncate(get(), sequence, n));
    }
    void fork(uint32_t from, uint32_t to)
    {
        check(vka_cache_fork(get(), from, to));
    }
    void set_pages(uint32_t sequence, uint32_t first, const std::vector<uint32_t> &pages)
    {
        check(vka_cache_set_pages(get(), sequence, first, static_cast<uint32_t>(pages.size()),
                                  pages.data()));
    }
};

class plan : public child<plan_handle>
{
  public:
    using child::child;

    static plan create(vka_device *device)
    {
        return create(device, info<vka_plan_info>());
    }
    static plan create(vka_device *device, const vka_plan_info &given)
    {
        plan made(device);
        made.check(vka_plan_create(device, &given, made.put()));
        return made;
    }

    /* Adds an operation: add(op) calls vka_plan_add_NOUN for a struct vka_NOUN_op, add_NOUN(op) for each
     * operation, of which rotary_backward takes the struct of another. */
#define VKA_OPERATION(noun, type)               \
    void add(const type &op)                    \
    {                                           \
        check(vka_plan_add_##noun(get(), &op)); \
    }                                           \
    VKA_OPERATION_ALIKE(noun, type)
#define VKA_OPERATION_ALIKE(noun, type)         \
    void add_##noun(const type &op)             \
    {                                           \
        check(vka_plan_add_##noun(get(), &op)); \
    }
#include <vkattn/vkattn_operations.h>

    uint64_t attention_state(const vka_attention_op &op)
    {
        uint64_t count = 0;
        check(vka_plan_attention_state(get(), &op, &count));
        return count;
    }

    void finish()
    {
        check(vka_plan_finish(get()));
    }
    uint64_t submit()
    {
        uint64_t ticket = 0;
        check(vka_plan_submit(get(), &ticket));
        return ticket;
    }
    void wait(uint64_t ticket, uint64_t timeout = VKA_TIMEOUT_DEFAULT)
    {
        check(vka_plan_wait(get(), ticket, timeout));
    }
    void run(uint64_t timeout = VKA_TIMEOUT_DEFAULT)
    {
        check(vka_plan_run(get(), timeout));
    }

    uint64_t workspace() const
    {
        return vka_plan_workspace(get());
    }

    /* One line for each pass: name, kernel, detail, reason. */
    std::string describe() const
    {
        std::string text(vka_plan_describe(get(), nullptr, 0) + 1, '\0');
        text.resize(vka_plan_describe(get(), &text[0], text.size()));
        return text;
    }
};

#endif /* exceptions */

} // namespace vka

#endif

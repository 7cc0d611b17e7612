/* Causal attention of four tokens in C++17: handles that own, infos with defaults, exceptions.
 *
 *     c++ -std=c++17 cpp.cpp -o cpp $(pkg-config --cflags --libs vkattn)
 *
 * SPDX-License-Identifier: MIT */
#include <vkattn/vkattn.hpp>

#include <iostream>

static void run()
{
    vka::device device = vka::device::create(); // the most capable one; declare it first
    std::cout << device.properties().name << '\n';

    // [batch][n_head][n_q][head_dim]
    vka::tensor x = vka::tensor::create(device, VKA_F32, {1, 1, 4, 1});
    vka::tensor y = vka::tensor::create(device, VKA_F32, {1, 1, 4, 1});

    vka::info<vka_attention_op> op; // every field but struct_size is 0, its default
    op.q = op.k = op.v = x;
    op.output = y;
    op.options.causal = true;
    vka::plan plan = vka::plan::create(device);
    plan.add(op);
    plan.finish();

    x.write(std::vector<float>{0, 1, 2, 3});
    plan.run(); // as often as wanted
    for (float value : y.read<float>())
        std::cout << value << ' ';
    std::cout << '\n';

    try {
        x.write(std::vector<float>{0, 1, 2});
    } catch (const vka::error &error) {
        std::cout << error.what() << '\n'; // names the argument, and what it should have been
    }
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

# bash completion for vkattn, made by 'vkattn help bash'

_vkattn_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

# The indices of the devices that are there.
_vkattn_devices() {
    "${words[0]}" devices --json 2>/dev/null |
        sed -n 's/.*"index": *\([0-9]*\).*/\1/p'
}

_vkattn() {
    local cur prev words cword command= i
    _init_completion || return
    for ((i = 1; i < cword; i++)); do
        case $command:${words[i]} in
        :devices | :run | :check | :bench | :tune | :generate | :embed | :tokens | :version | :help) command=${words[i]} ;;
        bench:layer | bench:attention | bench:matmul | bench:decode | bench:linear | bench:sweep) command="bench ${words[i]}" ;;
        esac
    done
    case $command:$prev in
    'run:--query') _filedir npy ;;
    'run:--output') _filedir npy ;;
    'run:--key') _filedir npy ;;
    'run:--value') _filedir npy ;;
    'run:--mask') _filedir npy ;;
    'run:--kv-lengths') _filedir npy ;;
    'run:--heads') ;;
    'run:--kv-heads') ;;
    'run:--window') ;;
    'run:--layout') _vkattn_words 'bsd sbd' ;;
    'run:--dtype') _vkattn_words 'f32 f16 bf16' ;;
    'run:--weights') _vkattn_words 'q8_0 q4_0' ;;
    'run:--scores') _filedir npy ;;
    'run:--path') _vkattn_words 'auto unfused fused' ;;
    'run:--html') _filedir ;;
    'run:--tokens') _filedir ;;
    'check:--path') _vkattn_words 'auto unfused fused' ;;
    'bench layer:--batch') ;;
    'bench layer:--seq') ;;
    'bench layer:--kv-seq') ;;
    'bench layer:--model-dim') ;;
    'bench layer:--heads') ;;
    'bench layer:--kv-heads') ;;
    'bench layer:--dtype') _vkattn_words 'f32 f16 bf16' ;;
    'bench layer:--path') _vkattn_words 'auto unfused fused' ;;
    'bench layer:--repeat') ;;
    'bench layer:--kernel') ;;
    'bench attention:--batch') ;;
    'bench attention:--heads') ;;
    'bench attention:--kv-heads') ;;
    'bench attention:--seq') ;;
    'bench attention:--kv-seq') ;;
    'bench attention:--head-dim') ;;
    'bench attention:--value-dim') ;;
    'bench attention:--dtype') _vkattn_words 'f32 f16 bf16' ;;
    'bench attention:--path') _vkattn_words 'auto unfused fused' ;;
    'bench attention:--repeat') ;;
    'bench attention:--kernel') ;;
    'bench matmul:--m') ;;
    'bench matmul:--n') ;;
    'bench matmul:--k') ;;
    'bench matmul:--dtype') _vkattn_words 'f32 f16 bf16' ;;
    'bench matmul:--path') _vkattn_words 'auto unfused fused' ;;
    'bench matmul:--repeat') ;;
    'bench matmul:--kernel') ;;
    'bench decode:--batch') ;;
    'bench decode:--heads') ;;
    'bench decode:--kv-heads') ;;
    'bench decode:--kv-seq') ;;
    'bench decode:--head-dim') ;;
    'bench decode:--kv') ;;
    'bench decode:--dtype') _vkattn_words 'f32 f16 bf16' ;;
    'bench decode:--path') _vkattn_words 'auto unfused fused' ;;
    'bench decode:--repeat') ;;
    'bench decode:--kernel') ;;
    'bench linear:--rows') ;;
    'bench linear:--n') ;;
    'bench linear:--k') ;;
    'bench linear:--weights') _vkattn_words 'f32 f16 bf16 i8 q8_0 q4_0 q4_1 q5_0 q4_K q6_K mxfp4 q5_1 q5_K q3_K q2_K iq4_nl iq4_xs nvfp4 tq2_0 tq1_0 iq3_s iq3_xxs iq2_xxs iq2_xs iq2_s iq1_s iq1_m f8_e4m3_g64 f8_e5m2_g64 nf4_g64 i4_g128' ;;
    'bench linear:--activations') _vkattn_words 'input i8' ;;
    'bench linear:--dtype') _vkattn_words 'f32 f16 bf16' ;;
    'bench linear:--path') _vkattn_words 'auto unfused fused' ;;
    'bench linear:--repeat') ;;
    'bench linear:--kernel') ;;
    'bench sweep:--lengths') ;;
    'bench sweep:--batch') ;;
    'bench sweep:--heads') ;;
    'bench sweep:--kv-heads') ;;
    'bench sweep:--head-dim') ;;
    'bench sweep:--dtype') _vkattn_words 'f32 f16 bf16' ;;
    'bench sweep:--repeat') ;;
    'bench sweep:--csv') _filedir ;;
    'bench sweep:--svg') _filedir ;;
    'tune:--output') _filedir ;;
    'tune:--dtype') _vkattn_words 'f32 f16 bf16' ;;
    'generate:--ids') ;;
    'generate:--tokens') ;;
    'generate:--temperature') ;;
    'generate:--seed') ;;
    'generate:--kv') _vkattn_words 'f32 f16 q8_0 q4_0' ;;
    'embed:--ids') ;;
    'embed:--pooling') _vkattn_words 'file mean first' ;;
    'embed:--output') _filedir npy ;;
    *:--device) _vkattn_words "$(_vkattn_devices)" ;;
    *:--limits) ;;
    *:--timeout) ;;
    *:--submit-budget) ;;
    *:--tuning-profile) _filedir ;;
    *) _vkattn_word ;;
    esac
}

# An option, or what a command is given.
_vkattn_word() {
    case $command:$cur in
    :-*) _vkattn_words '--device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help --version' ;;
    :*) _vkattn_words 'devices run check bench tune generate embed tokens version help' ;;
    bench:*) _vkattn_words 'layer attention matmul decode linear sweep' ;;
    help:*) _vkattn_words 'devices run check bench tune generate embed tokens version help man bash zsh fish' ;;
    'devices':-*) _vkattn_words '--kernels --json --self-test --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'run':-*) _vkattn_words '--query --output --key --value --mask --kv-lengths --heads --kv-heads --causal --window --layout --dtype --weights --scores --path --html --tokens --count-nonfinite --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'run':*) _filedir safetensors ;;
    'check':-*) _vkattn_words '--path --json --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'check':*) _filedir safetensors ;;
    'bench layer':-*) _vkattn_words '--batch --seq --kv-seq --model-dim --heads --kv-heads --causal --dtype --path --repeat --json --passes --explain --kernel --warm --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'bench attention':-*) _vkattn_words '--batch --heads --kv-heads --seq --kv-seq --head-dim --value-dim --causal --dtype --path --repeat --json --passes --explain --kernel --warm --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'bench matmul':-*) _vkattn_words '--m --n --k --dtype --path --repeat --json --passes --explain --kernel --warm --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'bench decode':-*) _vkattn_words '--batch --heads --kv-heads --kv-seq --head-dim --kv --dtype --path --repeat --json --passes --explain --kernel --warm --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'bench linear':-*) _vkattn_words '--rows --n --k --weights --activations --dtype --path --repeat --json --passes --explain --kernel --warm --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'bench sweep':-*) _vkattn_words '--lengths --batch --heads --kv-heads --head-dim --causal --dtype --repeat --csv --svg --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'tune':-*) _vkattn_words '--output --dtype --quick --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'generate':-*) _vkattn_words '--ids --tokens --temperature --seed --kv --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'generate':*) _filedir gguf ;;
    'embed':-*) _vkattn_words '--ids --pooling --plain --output --device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile --help' ;;
    'embed':*) _filedir gguf ;;
    esac
}

complete -F _vkattn vkattn

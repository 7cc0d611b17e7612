# bash completion for vkattn

_vkattn() {
    local cur prev words cword
    _init_completion || return
    local device='--device --validate --limits --timeout --submit-budget --no-cache --no-self-test --tuning-profile'
    local bench='--dtype --path --repeat --json --passes --explain --kernel --warm'

    case $prev in
    --query | --key | --value | --mask | --kv-lengths | --scores)
        _filedir npy
        return
        ;;
    --html | --tokens | --csv | --svg | --output | --tuning-profile)
        _filedir
        return
        ;;
    --dtype)
        mapfile -t COMPREPLY < <(compgen -W 'f32 f16 bf16' -- "$cur")
        return
        ;;
    --path)
        mapfile -t COMPREPLY < <(compgen -W 'auto unfused fused' -- "$cur")
        return
        ;;
    --layout)
        mapfile -t COMPREPLY < <(compgen -W 'bsd sbd' -- "$cur")
        return
        ;;
    --device)
        mapfile -t COMPREPLY < <(compgen -W "$(_vkattn_devices)" -- "$cur")
        return
        ;;
    --heads | --kv-heads | --window | --batch | --seq | --kv-seq | --model-dim | --head-dim | \
        --value-dim | --m | --n | --k | --repeat | --lengths | --limits | --timeout)
        return
        ;;
    esac

    local options=
    case ${words[1]}:${words[2]} in
    devices:*) options='--json --self-test' ;;
    run:*)
        options="--query --output --key --value --mask --kv-lengths --heads --kv-heads --causal
                 --window --layout --dtype --weights --scores --path --html --tokens --count-nonfinite $device"
        ;;
    check:*) options="--path --json $device" ;;
    tune:*) options="--output --dtype --quick $device" ;;
    bench:layer)
        options="--batch --seq --kv-seq --model-dim --heads --kv-heads --causal $bench $device"
        ;;
    bench:attention)
        options="--batch --heads --kv-heads --seq --kv-seq --head-dim --value-dim --causal
                 $bench $device"
        ;;
    bench:linear) options="--rows --n --k --weights --activations $bench $device" ;;
    bench:matmul) options="--m --n --k $bench $device" ;;
    bench:decode) options="--batch --heads --kv-heads --kv-seq --head-dim $bench $device" ;;
    bench:sweep)
        options="--lengths --batch --heads --kv-heads --head-dim --causal --dtype --repeat --csv
                 --svg $device"
        ;;
    bench:*) options='layer attention matmul decode linear sweep' ;;
    *) options='devices run check bench tune version help' ;;
    esac
    if [[ $cur != -* && ${words[1]} == run ]]; then
        _filedir safetensors
    elif [[ $cur != -* && ${words[1]} == check ]]; then
        _filedir safetensors
    else
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    fi
}

# The indices of the devices that are there.
_vkattn_devices() {
    "${words[0]}" devices --json 2>/dev/null | sed -n 's/.*"index": *\([0-9]*\).*/\1/p'
}

complete -F _vkattn vkattn

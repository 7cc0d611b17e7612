# bash completion for vkattn-mpi

_vkattn_mpi() {
    local cur prev words cword
    _init_completion || return
    case $prev in
    --split)
        mapfile -t COMPREPLY < <(compgen -W 'heads batch sequence' -- "$cur")
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
    --batch | --seq | --model-dim | --heads | --kv-heads | --rounds | --repeat | --latency-us | \
        --gbps | --device | --timeout)
        return
        ;;
    esac
    if [ "$cword" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W 'bench help' -- "$cur")
        return
    fi
    local options='--batch --seq --model-dim --heads --kv-heads --causal --split --dtype --path
                   --rounds --repeat --latency-us --gbps --device --timeout --json'
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
}

complete -F _vkattn_mpi vkattn-mpi

# bash completion for vkattn-mnist

_vkattn_mnist() {
    local cur prev words cword
    _init_completion || return
    case $prev in
    --model)
        _filedir safetensors
        return
        ;;
    --images | --labels | --html | --logits)
        _filedir
        return
        ;;
    --count | --device | --timeout)
        return
        ;;
    esac
    local options='--model --images --labels --count --html --logits --json --device --validate
                   --no-cache --no-self-test --timeout --help'
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
}

complete -F _vkattn_mnist vkattn-mnist

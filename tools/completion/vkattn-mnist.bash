# bash completion for vkattn-mnist

_vkattn_mnist() {
    local cur prev words cword
    _init_completion || return
    case $prev in
    --model)
        if [ "${words[1]}" = train ]; then
            mapfile -t COMPREPLY < <(compgen -W 'documented executed mlp' -- "$cur")
        else
            _filedir safetensors
        fi
        return
        ;;
    --resume | --output)
        _filedir safetensors
        return
        ;;
    --images | --labels | --test-images | --test-labels | --html | --logits)
        _filedir
        return
        ;;
    --count | --device | --timeout | --epochs | --batch | --lr | --seed)
        return
        ;;
    esac
    local options='--model --images --labels --count --html --logits --json --device --validate
                   --no-cache --no-self-test --timeout --help'
    if [ "${words[1]}" = train ]; then
        options='--model --images --labels --test-images --test-labels --resume --epochs --batch --lr
                 --seed --output --html --device --validate --no-cache --no-self-test --timeout --help'
    elif [ "$cword" -eq 1 ]; then
        options="train $options"
    fi
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
}

complete -F _vkattn_mnist vkattn-mnist

#compdef vkattn
# made by 'vkattn help zsh'

_vkattn_devices() {
    local -a found
    found=(${(f)"$(${words[1]} devices --json 2>/dev/null |
        sed -n 's/.*"index": *\([0-9]*\).*/\1/p')"})
    compadd -a found
}

_vkattn() {
    local command i
    local -a commands operations options device
    commands=(
        'devices:lists every Vulkan device and what it can do'
        'run:runs a whole layer on one input'
        'check:runs case files and compares with the expected results'
        'tune:measures which kernels are the fastest on this device'
        'generate:continues a prompt by a language model'
        'embed:makes vectors of texts by a BERT'
        'tokens:prints the ids of the tokens of texts'
        'version:prints the version'
        'help:explains a command'
        'bench:times a recorded operation'
    )
    operations=(
        'layer:times a whole layer'
        'attention:times attention alone'
        'matmul:times C = A B^T'
        'decode:times one new token against a cache'
        'linear:times Y = X W^T with weights of any type'
        'sweep:times attention and decoding at doubling lengths'
    )
    device=(
        '--device[The device by its index in '\''vkattn devices'\'', or by a part of its name in any case]:device:_vkattn_devices'
        '--validate[Enables the Khronos validation layer]'
        '--limits[The largest binding and the largest allocation in bytes]:limits: '
        '--timeout[The longest wait for the device, 120 if not given (tune\: 600)]:timeout: '
        '--submit-budget[The predicted time that one submit may take on the device, 200 if not given]:submit-budget: '
        '--no-cache[Neither reads nor writes the file of compiled pipelines and findings]'
        '--no-self-test[Uses kernels without a self-test]'
        '--tuning-profile[Measured choices of kernels, or none for the rules alone]:tuning-profile:_files'
        '--help[explains the command]'
    )
    for ((i = 2; i < CURRENT; i++)); do
        case $command:${words[i]} in
        :devices|:run|:check|:bench|:tune|:generate|:embed|:tokens|:version|:help) command=${words[i]} ;;
        bench:layer|bench:attention|bench:matmul|bench:decode|bench:linear|bench:sweep) command="bench ${words[i]}" ;;
        esac
    done
    case $command in
    '') _arguments $device '*: :{_describe command commands}' ;;
    bench) _arguments $device '*: :{_describe operation operations}' ;;
    help) _describe command commands ;;
    'devices')
        options=(
        '--kernels[Adds for each kernel whether it is usable, or what it lacks]'
        '--json[Prints an object a line, with all that is known, the kernels too]'
        '--self-test[Tests all kernels that the rules choose, and keeps the findings]'
        )
        _arguments $device $options '*: : ' ;;
    'run')
        options=(
        '--query[The input]:query:_files -g "*.npy"'
        '--output[The file for the output]:output:_files -g "*.npy"'
        '--key[Keys are made of it]:key:_files -g "*.npy"'
        '--value[Values are made of it, else of the input of the keys]:value:_files -g "*.npy"'
        '--mask[Boolean (true\: visible) or float (added to the scores)]:mask:_files -g "*.npy"'
        '--kv-lengths[The number of visible keys of each batch element]:kv-lengths:_files -g "*.npy"'
        '--heads[The number of query heads]:heads: '
        '--kv-heads[The number of key and value heads]:kv-heads: '
        '--causal[Hides the keys after the position of each query]'
        '--window[Hides keys that are farther away to the left and right]:window: '
        '--layout[Batch or sequence first]:layout:(bsd sbd)'
        '--dtype[The storage type on the device]:dtype:(f32 f16 bf16)'
        '--weights[Quantises the weights on the host in blocks of 32]:weights:(q8_0 q4_0)'
        '--scores[Writes the softmax weights]:scores:_files -g "*.npy"'
        '--path[Computes scores, softmax and weighted sum in separate passes, or in one]:path:(auto unfused fused)'
        '--html[Draws what each head attends to]:html:_files'
        '--tokens[Labels the page\: a line a token, an empty line between the inputs of a batch, and with --key between queries and keys]:tokens:_files'
        '--count-nonfinite[Tells on standard error of NaN and infinite elements of each result]'
        )
        _arguments $device $options '*: :_files -g "*.safetensors"' ;;
    'check')
        options=(
        '--path[The path of attention]:path:(auto unfused fused)'
        '--json[Prints objects instead, in UTF-8]'
        )
        _arguments $device $options '*: :_files -g "*.safetensors"' ;;
    'bench layer')
        options=(
        '--batch[Sequences]:batch: '
        '--seq[Queries]:seq: '
        '--kv-seq[Keys, as many as queries if not given]:kv-seq: '
        '--model-dim[Width of inputs and output]:model-dim: '
        '--heads[Query heads]:heads: '
        '--kv-heads[Key and value heads, as many as query heads if not given]:kv-heads: '
        '--causal[Hides the keys after each query]'
        '--dtype[The storage type on the device]:dtype:(f32 f16 bf16)'
        '--path[The path of attention]:path:(auto unfused fused)'
        '--repeat[How often it is timed]:repeat: '
        '--json[Prints one object a line]'
        '--passes[Prints a line for each pass]'
        '--explain[Prints why each kernel was chosen]'
        '--kernel[Forces a kernel of products or of attention, and by 1 to 7 other tiles of it]:kernel: '
        '--warm[Uses the pipelines that earlier commands compiled, and keeps new ones]'
        )
        _arguments $device $options '*: : ' ;;
    'bench attention')
        options=(
        '--batch[Sequences]:batch: '
        '--heads[Query heads]:heads: '
        '--kv-heads[Key and value heads, as many as query heads if not given]:kv-heads: '
        '--seq[Queries]:seq: '
        '--kv-seq[Keys, as many as queries if not given]:kv-seq: '
        '--head-dim[Features of a query and a key]:head-dim: '
        '--value-dim[Features of a value, as many as of a key if not given]:value-dim: '
        '--causal[Hides the keys after each query]'
        '--dtype[The storage type on the device]:dtype:(f32 f16 bf16)'
        '--path[The path of attention]:path:(auto unfused fused)'
        '--repeat[How often it is timed]:repeat: '
        '--json[Prints one object a line]'
        '--passes[Prints a line for each pass]'
        '--explain[Prints why each kernel was chosen]'
        '--kernel[Forces a kernel of products or of attention, and by 1 to 7 other tiles of it]:kernel: '
        '--warm[Uses the pipelines that earlier commands compiled, and keeps new ones]'
        )
        _arguments $device $options '*: : ' ;;
    'bench matmul')
        options=(
        '--m[Rows of A and C]:m: '
        '--n[Rows of B, columns of C]:n: '
        '--k[Columns of A and B]:k: '
        '--dtype[The storage type on the device]:dtype:(f32 f16 bf16)'
        '--path[The path of attention]:path:(auto unfused fused)'
        '--repeat[How often it is timed]:repeat: '
        '--json[Prints one object a line]'
        '--passes[Prints a line for each pass]'
        '--explain[Prints why each kernel was chosen]'
        '--kernel[Forces a kernel of products or of attention, and by 1 to 7 other tiles of it]:kernel: '
        '--warm[Uses the pipelines that earlier commands compiled, and keeps new ones]'
        )
        _arguments $device $options '*: : ' ;;
    'bench decode')
        options=(
        '--batch[Sequences]:batch: '
        '--heads[Query heads]:heads: '
        '--kv-heads[Key and value heads, as many as query heads if not given]:kv-heads: '
        '--kv-seq[Keys of the cache]:kv-seq: '
        '--head-dim[Features of a query, key and value]:head-dim: '
        '--kv[Types of keys and values\: f32, f16, bf16, q8_0, q4_0, fp8]:kv: '
        '--dtype[The storage type on the device]:dtype:(f32 f16 bf16)'
        '--path[The path of attention]:path:(auto unfused fused)'
        '--repeat[How often it is timed]:repeat: '
        '--json[Prints one object a line]'
        '--passes[Prints a line for each pass]'
        '--explain[Prints why each kernel was chosen]'
        '--kernel[Forces a kernel of products or of attention, and by 1 to 7 other tiles of it]:kernel: '
        '--warm[Uses the pipelines that earlier commands compiled, and keeps new ones]'
        )
        _arguments $device $options '*: : ' ;;
    'bench linear')
        options=(
        '--rows[Rows of X and Y]:rows: '
        '--n[Rows of W, columns of Y]:n: '
        '--k[Columns of X and W]:k: '
        '--weights[The type of W, such as q4_k]:weights:(f32 f16 bf16 i8 q8_0 q4_0 q4_1 q5_0 q4_K q6_K mxfp4 q5_1 q5_K q3_K q2_K iq4_nl iq4_xs nvfp4 tq2_0 tq1_0 iq3_s iq3_xxs iq2_xxs iq2_xs iq2_s iq1_s iq1_m f8_e4m3_g64 f8_e5m2_g64 nf4_g64 i4_g128)'
        '--activations[Whether X is quantised to int8 first]:activations:(input i8)'
        '--dtype[The storage type on the device]:dtype:(f32 f16 bf16)'
        '--path[The path of attention]:path:(auto unfused fused)'
        '--repeat[How often it is timed]:repeat: '
        '--json[Prints one object a line]'
        '--passes[Prints a line for each pass]'
        '--explain[Prints why each kernel was chosen]'
        '--kernel[Forces a kernel of products or of attention, and by 1 to 7 other tiles of it]:kernel: '
        '--warm[Uses the pipelines that earlier commands compiled, and keeps new ones]'
        )
        _arguments $device $options '*: : ' ;;
    'bench sweep')
        options=(
        '--lengths[Doubled from the first to the second, 512,16384 if not given]:lengths: '
        '--batch[Sequences]:batch: '
        '--heads[Query heads]:heads: '
        '--kv-heads[Key and value heads, as many as query heads if not given]:kv-heads: '
        '--head-dim[Features of a query, key and value]:head-dim: '
        '--causal[Hides the keys after each query]'
        '--dtype[The storage type on the device]:dtype:(f32 f16 bf16)'
        '--repeat[How often each is timed]:repeat: '
        '--csv[Receives the results]:csv:_files'
        '--svg[Receives a plot]:svg:_files'
        )
        _arguments $device $options '*: : ' ;;
    'tune')
        options=(
        '--output[Receives the tuning profile, else the user'\''s cache folder does]:output:_files'
        '--dtype[Measures this storage type alone]:dtype:(f32 f16 bf16)'
        '--quick[Measures small problems only, to see that tuning works]'
        )
        _arguments $device $options '*: : ' ;;
    'generate')
        options=(
        '--ids[The ids of the tokens of the prompt, in place of a text]:ids: '
        '--tokens[How many tokens follow, 64 if not given]:tokens: '
        '--temperature[Draws each token]:temperature: '
        '--seed[The seed of what is drawn, 0 if not given]:seed: '
        '--kv[The type of the cached keys and values, f32 if not given]:kv:(f32 f16 q8_0 q4_0)'
        )
        _arguments $device $options '*: :_files -g "*.gguf"' ;;
    'embed')
        options=(
        '--ids[The ids of the tokens of each text, those that begin and end it included, in place of texts]:ids: '
        '--pooling[Whether the vector is the mean of the last rows, or the first of them]:pooling:(file mean first)'
        '--plain[Leaves the length of the vectors as it is]'
        '--output[Receives \[texts\]\[width\], instead of standard output]:output:_files -g "*.npy"'
        )
        _arguments $device $options '*: :_files -g "*.gguf"' ;;
    esac
}

_vkattn "$@"

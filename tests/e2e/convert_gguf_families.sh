# convert_gguf_families.sh - `nibble convert` to GGUF for every architecture: the folder's logits, bit for bit where no
# number of config.json is rounded; llama.cpp's library from npm loads the files, gives these logits, splits text into the
# same tokens, and has the same types in the same places.
. "$2/tests/e2e/_lib.sh"
parity=$src/tests/parity
py=$src/tests/e2e/_convert_family.py
need "$parity/qwen3/model.safetensors" "no parity vectors"
echo '[0,5,100,200,300,17,141,59,265,35,89,7]' >"$tmp/ids"
exact() { ok "$@" --tokens "$tmp/ids" --kv-cache-dtype f32 --activation-dtype float --device cpu; }

lib=
if command -v npm >/dev/null && [ "$(uname -m)" = x86_64 ] &&
    (cd "$tmp" && npm pack @node-llama-cpp/linux-x64@3.22.1 && tar xzf ./*.tgz) >/dev/null 2>&1; then
    lib=$tmp/package/bins/linux-x64
fi

# case, what is changed in config.json
for row in llama3 llama_bias qwen2 qwen3 'minicpm3_short "dim_model_base":256,"rms_norm_eps":1e-6' \
    'minicpm3_short "dim_model_base":256,"rms_norm_eps":1e-6,"max_position_embeddings":4096,"factor":8.0' \
    'kimi_k2 "beta_fast":32.0' 'glm4_moe_lite "rms_norm_eps":1e-6' youtu v2_lite 'v3_moonlight "rms_norm_eps":1e-6'; do
    name=${row%% *} change=
    [ "$name" = "$row" ] || change=${row#* }
    [ -e "$parity/$name/config.json" ] || continue
    rm -rf "$tmp/m" "$tmp/m.gguf"
    python3 "$py" folder "$parity/$name" "$tmp/m" "{$change}" || die "no $name"
    ok convert "$tmp/m" "$tmp/m.gguf" --weight-format gguf:F32 --gguf-pre none
    exact logits "$tmp/m" --output "$tmp/a"
    exact logits "$tmp/m.gguf" --output "$tmp/b" --strict
    python3 "$py" compare "$tmp/a" "$tmp/b" 1e-5 || die "$row: other logits than the folder's"
    ok plan "$tmp/m.gguf"
    [ -n "$lib" ] || continue
    python3 "$src/tests/e2e/_llama.py" logits "$lib" "$tmp/m.gguf" "$tmp/ids" "$tmp/l" || die "$row: llama.cpp does not load it"
    python3 "$py" compare "$tmp/l" "$tmp/b" 1e-3 last || die "$row: other logits than llama.cpp's"
done

# A name for what cannot be said.
refuse() { # words of the error line, parity case, change
    rm -rf "$tmp/m"
    python3 "$py" folder "$parity/$2" "$tmp/m" "{${3-}}" || die "no $2"
    # shellcheck disable=SC2086
    fails 1 "$1" convert "$tmp/m" "$tmp/x" --weight-format gguf:Q8_0 --gguf-pre none
    [ -e "$tmp/x" ] || [ -e "$tmp/x.partial" ] && die "$1: a failure leaves something"
}
refuse 'model_type "axk1" minicpm3 qwen3' axk1
refuse 'model_type "sarvam_mla"' sarvam_mla
refuse 'dim_model_base 256' minicpm3_short
refuse 'scale_emb 12' minicpm3_short '"dim_model_base":256,"scale_emb":7.5'
refuse 'q_lora_rank minicpm3' minicpm3_short '"dim_model_base":256,"q_lora_rank":null'
refuse 'attention_bias false' qwen3 '"attention_bias":true'
refuse 'use_sliding_window false' qwen2 '"use_sliding_window":true'
refuse 'layer_types full_attention' qwen2 '"layer_types":["sliding_attention"]'
refuse 'rope_type "llama3" qwen2' qwen2 '"rope_scaling":{"rope_type":"llama3"}'
refuse 'rope_type "dynamic"' llama3 '"rope_scaling":{"rope_type":"dynamic","factor":2.0}'
refuse 'factor missing' llama3 '"rope_scaling":{"rope_type":"linear"}'
refuse 'factor missing' llama3 '"rope_scaling":{"rope_type":"yarn","factor":-1}'
refuse 'high_freq_factor' llama3 '"rope_scaling":{"rope_type":"llama3","factor":8.0}'
refuse 'mscale' qwen3 '"rope_scaling":{"rope_type":"yarn","factor":4.0,"mscale":0.7}'
refuse 'attention_factor' qwen3 '"rope_scaling":{"rope_type":"yarn","factor":4.0,"attention_factor":1.5}'
refuse 'truncate' qwen3 '"rope_scaling":{"rope_type":"yarn","factor":4.0,"truncate":false}'
refuse 'short_factor has not 8 positive numbers' minicpm3_short '"dim_model_base":256,"rope_scaling":{"rope_type":"longrope","long_factor":[1,1,1,1,1,1,1,1],"short_factor":[1]}'
refuse 'long_factor has not 8 positive numbers' minicpm3_short '"dim_model_base":256,"rope_scaling":{"rope_type":"longrope","long_factor":[1,1,1,1,1,1,1,-1],"short_factor":[1]}'
refuse 'original_max_position_embeddings' llama3 '"original_max_position_embeddings":0'
refuse 'rope_theta' qwen2 '"rope_theta":0.5'
refuse 'num_attention_heads expected' llama3 '"num_attention_heads":0'
refuse 'num_key_value_heads count' llama3 '"num_key_value_heads":-1'
refuse 'no grouped attention' llama3 '"num_key_value_heads":3'
refuse '_proj.weight expected heads of 22' llama3 '"head_dim":22'
refuse 'vocab_size expected' qwen2 '"vocab_size":1e9'
refuse 'num_hidden_layers expected' qwen2 '"num_hidden_layers":"3"'
refuse 'mlp_layer_types' glm4_moe_lite '"mlp_layer_types":["sparse","dense","sparse"]'
refuse 'kv_b_proj.weight expected' kimi_k2 '"qk_nope_head_dim":25'
refuse 'hidden_act silu' llama3 '"hidden_act":"gelu"'
refuse 'num_experts 0' qwen3 '"num_experts":8'
refuse 'moe_layer_freq 1' v2_lite '"moe_layer_freq":2'
refuse 'no place in a GGUF file of qwen2' kimi_k2 '"model_type":"qwen2","rope_scaling":null,"head_dim":0,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2'

# SentencePiece's vocabulary: a small published model.
checkpoint=$src/../shared/data/checkpoints/stories260K.bin
if [ -e "$checkpoint" ]; then
    python3 "$src/tests/e2e/_gguf.py" stories "$checkpoint" "$(dirname "$checkpoint")/tok512.bin" "$tmp/st" || die "no conversion"
    printf 'Once upon a time,  there   was a "Dragon" (caf\303\251 \346\227\245).\n\nHe said: <s> x</s>?\t\360\237\230\200 ' >"$tmp/text"
    python3 "$py" spm "$tmp/st/model.gguf" "$tmp/st/hf" || die "no tokenizer.json"
    ok convert "$tmp/st/hf" "$tmp/st/own.gguf" --weight-format gguf:F32
    python3 "$py" tensors "$tmp/st/model.gguf" "$tmp/st/own.gguf" || die "stories260K: other tensors than those of the GGUF"
    for model_of in hf own.gguf model.gguf; do
        ok tokenize "$tmp/st/$model_of" --file "$tmp/text" --json --add-special --no-parse-special
        cp "$tmp/out" "$tmp/ids.$model_of"
        cmp -s "$tmp/ids.$model_of" "$tmp/ids.hf" || die "stories260K: other ids of $model_of: $(cat "$tmp/ids.$model_of") $(cat "$tmp/ids.hf")"
    done
    if [ -n "$lib" ]; then
        python3 "$src/tests/e2e/_llama.py" tokenize "$lib" "$tmp/st/own.gguf" "$tmp/text" >"$tmp/theirs" || die "llama.cpp does not tokenize"
        [ "$(json "$tmp/ids.hf" j)" = "$(json "$tmp/theirs" j)" ] || die "other ids than llama.cpp's: $(cat "$tmp/theirs") $(cat "$tmp/ids.hf")"
    fi
    # Lists of merges that no scores say.
    for how in order missing nothing pair prefix ignore first; do
        python3 "$py" spoil "$tmp/st/hf" "$tmp/bad" $how || die "no $how"
        fails 1 "tokenizer.json gguf-pre" convert "$tmp/bad" "$tmp/x" --weight-format gguf:F32
        [ -e "$tmp/x" ] || [ -e "$tmp/x.partial" ] && die "$how: a failure leaves something"
    done
fi

# The mixtures of types, in models with many layers.
[ -n "$lib" ] || skip "no library of llama.cpp: its logits, ids and types were not compared"
for family in llama qwen2 minicpm3; do
    python3 "$py" deep $family "$tmp/deep" || die "no $family"
    rm -f "$tmp/f32.gguf"
    ok convert "$tmp/deep" "$tmp/f32.gguf" --weight-format gguf:F32 --gguf-pre none
    # one mixture in which all is alike, and all others
    for type in Q4_0 Q5_K_M Q4_K_M Q4_K_S Q3_K_L Q3_K_M Q2_K; do
        rm -f "$tmp/q.gguf"
        ok convert "$tmp/deep" "$tmp/q.gguf" --weight-format gguf:$type --gguf-pre none
        python3 "$src/tests/e2e/_llama.py" quantise "$lib" "$tmp/f32.gguf" "$tmp/theirs.gguf" $type || die "$family $type: llama.cpp does not quantise"
        python3 "$py" types "$tmp/q.gguf" "$tmp/theirs.gguf" || die "$family $type: other types than llama.cpp's"
    done
    exact logits "$tmp/q.gguf" --output "$tmp/b"
    python3 "$src/tests/e2e/_llama.py" logits "$lib" "$tmp/q.gguf" "$tmp/ids" "$tmp/l" || die "$family: llama.cpp does not load it"
    python3 "$py" compare "$tmp/l" "$tmp/b" 0.1 last || die "$family: Q2_K: other logits than llama.cpp's"
done
exit 0

//! A model of one layer that is made on the spot: it babbles letters, and calls a tool when there are tools and no result yet.
//!
//! Its tokens are characters. What it says next depends on the last token, and on two marks of the template anywhere in the prompt: one
//! that there are tools, one that a tool has answered. All else is forced by the grammar that the server makes of the tools.

use super::gguf::{Gguf, Meta};

/// How prompts are written. `§` is the mark of tools on offer, `¶` that of a tool's answer; a call is `<#>…<#%`.
pub const TEMPLATE: &str = concat!(
    "{%- if tools %}{{- '|system\n§\n' }}{%- for tool in tools %}{{- (tool | tojson) + '\n' }}{%- endfor %}{{- '|end\n' }}{%- endif %}",
    "{%- for message in messages %}",
    "{%- if message.role == 'tool' %}{{- '|tool\n¶' + message.content + '|end\n' }}",
    "{%- elif message.role == 'assistant' %}{{- '|assistant\n' }}",
    "{%- if message.content %}{{- message.content }}{%- endif %}",
    "{%- for call in message.tool_calls %}",
    "{{- '<#>\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' + (call.function.arguments | tojson) + '}\n<#%' }}",
    "{%- endfor %}{{- '|end\n' }}",
    "{%- else %}{{- '|' + message.role + '\n' + message.content + '|end\n' }}{%- endif %}",
    "{%- endfor %}",
    "{%- if add_generation_prompt %}{{- '|assistant\n' }}{%- endif %}",
);

/// The same for a model that thinks first, between `[T]` and `[/T]`, and has no tools.
pub const THINKING: &str = concat!(
    "{%- for message in messages %}",
    "{%- if message.role == 'assistant' %}{{- '|assistant\n' }}",
    "{%- if message.reasoning_content %}{{- '[T]\n' + message.reasoning_content + '[/T]\n' }}{%- endif %}",
    "{%- if message.content %}{{- message.content }}{%- endif %}{{- '|end\n' }}",
    "{%- else %}{{- '|' + message.role + '\n' + message.content + '|end\n' }}{%- endif %}",
    "{%- endfor %}",
    "{%- if add_generation_prompt %}{{- '|assistant\n' }}{%- if enable_thinking %}{{- '[T]\n' }}{%- endif %}{%- endif %}",
);

/// Tokens in front of those of bytes: the unknown one, the beginning, the end.
const SPECIAL: usize = 3;
const END: usize = 2;
/// Tokens behind those of bytes: a blank as the tokeniser writes it, and the two marks.
const BLANK: usize = SPECIAL + 256;
const TOOLS_MARK: usize = BLANK + 1;
const RESULT_MARK: usize = BLANK + 2;
const TOKENS: usize = BLANK + 3;

/// A place of the state for each token, then one that is always 1 and one for each mark; divisible by the heads.
const ALWAYS: usize = TOKENS;
const TOOLS: usize = TOKENS + 1;
const RESULTS: usize = TOKENS + 2;
const WIDTH: usize = 272;

/// What nothing else outweighs.
const NEVER: f32 = -1_000.0;
/// How much a mark counts: the attention divides it by the tokens of the prompt.
const MARK: f32 = 1_000.0;

fn byte(byte: u8) -> usize {
    SPECIAL + usize::from(byte)
}

/// What is favoured as the next token: a row for each, over the places of the state.
fn output() -> Vec<f32> {
    let mut rows = vec![vec![0.0_f32; WIDTH]; TOKENS];
    for (token, row) in rows.iter_mut().enumerate() {
        let letter = token == BLANK || (b'a'..=b'z').any(|letter| byte(letter) == token);
        // An end now and then: of what is said, and of a string.
        row[ALWAYS] = if letter {
            0.0
        } else if token == END || token == byte(b'"') {
            0.06
        } else {
            NEVER
        };
    }
    // A call begins where an answer begins, if there are tools and no results.
    let begin = &mut rows[byte(b'<')];
    begin[ALWAYS] = NEVER - 2.0;
    begin[byte(b'\n')] = -NEVER;
    begin[TOOLS] = 10.0;
    begin[RESULTS] = -20.0;
    for (last, next) in [(b'<', byte(b'#')), (b'#', byte(b'>')), (b'>', byte(b'\n')), (b'%', END)] {
        rows[next][byte(last)] = -2.0 * NEVER;
    }
    // A thought ends with the last letters of the alphabet.
    for (last, next) in
        [(b'x', b'['), (b'y', b'['), (b'z', b'['), (b'[', b'/'), (b'/', b'T'), (b'T', b']'), (b']', b'\n')]
    {
        rows[byte(next)][byte(last)] = -2.0 * NEVER;
    }
    rows.concat()
}

/// The attention looks at all tokens alike, and carries the marks to their places.
fn marks() -> Vec<f32> {
    let mut value = vec![0.0; WIDTH * WIDTH];
    value[TOOLS * WIDTH + TOOLS_MARK] = 1.0;
    value[RESULTS * WIDTH + RESULT_MARK] = 1.0;
    value
}

fn scaled(by: f32) -> Vec<f32> {
    (0..WIDTH * WIDTH).map(|at| if at % (WIDTH + 1) == 0 { by } else { 0.0 }).collect()
}

fn embeddings() -> Vec<f32> {
    let row = |token: usize| {
        let mut row = vec![0.0; WIDTH];
        row[token] = 1.0;
        row[ALWAYS] = 1.0;
        row
    };
    (0..TOKENS).flat_map(row).collect()
}

fn vocabulary(file: &mut Gguf) {
    let mut tokens = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(["▁", "§", "¶"].map(str::to_owned));
    // Unknown, control, bytes, usual ones.
    let kinds = [vec![2, 3, 3], vec![6; 256], vec![1; 3]].concat();
    file.meta("tokenizer.ggml.model", Meta::Text("llama".into()));
    file.meta("tokenizer.ggml.tokens", Meta::Texts(tokens));
    file.meta("tokenizer.ggml.scores", Meta::F32s(vec![0.0; TOKENS]));
    file.meta("tokenizer.ggml.token_type", Meta::I32s(kinds));
    file.meta("tokenizer.ggml.unknown_token_id", Meta::U32(0));
    file.meta("tokenizer.ggml.bos_token_id", Meta::U32(1));
    file.meta("tokenizer.ggml.eos_token_id", Meta::U32(2));
    file.meta("tokenizer.ggml.add_bos_token", Meta::Bool(false));
    file.meta("tokenizer.ggml.add_space_prefix", Meta::Bool(false));
    file.meta("tokenizer.chat_template", Meta::Text(TEMPLATE.into()));
}

/// The model's file.
pub fn file() -> Vec<u8> {
    let mut file = Gguf::default();
    file.meta("general.architecture", Meta::Text("llama".into()));
    file.meta("general.name", Meta::Text("made on the spot".into()));
    let number = |count: usize| Meta::U32(u32::try_from(count).expect("a small number"));
    for (name, count) in [
        ("context_length", 1 << 16),
        ("embedding_length", WIDTH),
        ("block_count", 1),
        ("feed_forward_length", 32),
        ("attention.head_count", 4),
        ("rope.dimension_count", WIDTH / 4),
        ("vocab_size", TOKENS),
    ] {
        file.meta(&format!("llama.{name}"), number(count));
    }
    file.meta("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5));
    vocabulary(&mut file);
    file.tensor("token_embd.weight", &[WIDTH, TOKENS], embeddings());
    file.tensor("output_norm.weight", &[WIDTH], vec![1.0; WIDTH]);
    file.tensor("output.weight", &[WIDTH, TOKENS], output());
    file.tensor("blk.0.attn_norm.weight", &[WIDTH], vec![1.0; WIDTH]);
    for name in ["attn_q", "attn_k"] {
        file.tensor(&format!("blk.0.{name}.weight"), &[WIDTH, WIDTH], vec![0.0; WIDTH * WIDTH]);
    }
    file.tensor("blk.0.attn_v.weight", &[WIDTH, WIDTH], marks());
    file.tensor("blk.0.attn_output.weight", &[WIDTH, WIDTH], scaled(MARK));
    file.tensor("blk.0.ffn_norm.weight", &[WIDTH], vec![1.0; WIDTH]);
    for (name, dimensions) in [("ffn_gate", [WIDTH, 32]), ("ffn_up", [WIDTH, 32]), ("ffn_down", [32, WIDTH])] {
        file.tensor(&format!("blk.0.{name}.weight"), &dimensions, vec![0.0; WIDTH * 32]);
    }
    file.bytes()
}

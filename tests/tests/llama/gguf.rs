//! Writes a GGUF file, the form in which llama.cpp reads models: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

/// Tensors begin at multiples of this.
const ALIGNMENT: usize = 32;

/// A value beside the tensors.
pub enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
}

impl Meta {
    fn number(&self) -> u32 {
        match self {
            Meta::U32(_) => 4,
            Meta::F32(_) => 6,
            Meta::Bool(_) => 7,
            Meta::Text(_) => 8,
            Meta::Texts(_) | Meta::F32s(_) | Meta::I32s(_) => 9,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut list = |number: u32, items: Vec<Vec<u8>>| {
            out.extend(number.to_le_bytes());
            out.extend((items.len() as u64).to_le_bytes());
            out.extend(items.concat());
        };
        match self {
            Meta::Texts(texts) => list(8, texts.iter().map(|text| counted(text)).collect()),
            Meta::F32s(values) => list(6, values.iter().map(|value| value.to_le_bytes().to_vec()).collect()),
            Meta::I32s(values) => list(5, values.iter().map(|value| value.to_le_bytes().to_vec()).collect()),
            Meta::U32(value) => out.extend(value.to_le_bytes()),
            Meta::F32(value) => out.extend(value.to_le_bytes()),
            Meta::Bool(value) => out.push(u8::from(*value)),
            Meta::Text(text) => out.extend(counted(text)),
        }
    }
}

/// A file under way.
#[derive(Default)]
pub struct Gguf {
    metas: Vec<(String, Meta)>,
    tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
}

impl Gguf {
    /// Says something of the model.
    pub fn meta(&mut self, name: &str, value: Meta) {
        self.metas.push((name.to_owned(), value));
    }

    /// Adds a tensor of numbers of 32 bits; the first dimension is that of neighbours.
    pub fn tensor(&mut self, name: &str, dimensions: &[usize], values: Vec<f32>) {
        assert_eq!(dimensions.iter().product::<usize>(), values.len(), "{name}");
        self.tensors.push((name.to_owned(), dimensions.to_vec(), values));
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metas.len() as u64).to_le_bytes());
        for (name, value) in &self.metas {
            out.extend(counted(name));
            out.extend(value.number().to_le_bytes());
            value.write(&mut out);
        }
        let mut data = Vec::new();
        for (name, dimensions, values) in &self.tensors {
            data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
            out.extend(counted(name));
            out.extend((dimensions.len() as u32).to_le_bytes());
            dimensions.iter().for_each(|count| out.extend((*count as u64).to_le_bytes()));
            // Numbers of 32 bits are type 0.
            out.extend(0_u32.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            values.iter().for_each(|value| data.extend(value.to_le_bytes()));
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out.extend(data);
        out
    }
}

fn counted(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

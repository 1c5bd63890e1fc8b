//! Writes GGUF files byte by byte, so that a test can lie in any field.

pub const F32: u32 = 0;
pub const Q4_0: u32 = 2;
pub const ALIGNMENT: usize = 32;

/// Metadata type numbers.
pub mod kind {
    pub const U32: u32 = 4;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
}

/// The file under construction. The fields are what a file claims; nothing is derived behind the test's back but the
/// counts, where a test leaves them out.
#[derive(Clone)]
pub struct Gguf {
    pub magic: [u8; 4],
    pub version: u32,
    pub tensor_count: Option<u64>,
    pub entry_count: Option<u64>,
    pub entries: Vec<Vec<u8>>,
    pub tensors: Vec<Info>,
    pub data: Vec<u8>,
}

/// One row of the tensor table.
#[derive(Clone)]
pub struct Info {
    pub name: Vec<u8>,
    pub dims: Vec<u64>,
    pub kind: u32,
    pub offset: u64,
}

impl Info {
    pub fn new(name: &str, dims: &[u64], kind: u32, offset: u64) -> Info {
        Info { name: name.into(), dims: dims.into(), kind, offset }
    }
}

impl Gguf {
    /// A valid file: two F32 vectors of eight values, a name and an alignment.
    pub fn valid() -> Gguf {
        Gguf {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            entry_count: None,
            entries: vec![
                entry("general.name", kind::STRING, &string(b"valid")),
                entry("general.alignment", kind::U32, &(ALIGNMENT as u32).to_le_bytes()),
            ],
            tensors: vec![Info::new("a", &[8], F32, 0), Info::new("b", &[4, 2], F32, 32)],
            data: (0..64).collect(),
        }
    }

    /// The valid file with only one tensor, whose data is `data` bytes long.
    pub fn with_tensor(info: Info, data: usize) -> Gguf {
        Gguf { tensors: vec![info], data: vec![0; data], ..Gguf::valid() }
    }

    /// The valid file with one more metadata entry.
    pub fn with_entry(entry: Vec<u8>) -> Gguf {
        let mut file = Gguf::valid();
        file.entries.push(entry);
        file
    }

    pub fn header(&self) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.entry_count.unwrap_or(self.entries.len() as u64).to_le_bytes());
        bytes.extend(self.entries.concat());
        for info in &self.tensors {
            bytes.extend(string(&info.name));
            bytes.extend((info.dims.len() as u32).to_le_bytes());
            bytes.extend(info.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            bytes.extend(info.kind.to_le_bytes());
            bytes.extend(info.offset.to_le_bytes());
        }
        bytes
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes.extend(&self.data);
        bytes
    }
}

pub fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

pub fn entry(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&string(key.as_bytes()), &kind.to_le_bytes()[..], value].concat()
}

/// The value of an array entry.
pub fn array(element: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    [&element.to_le_bytes()[..], &count.to_le_bytes(), elements].concat()
}

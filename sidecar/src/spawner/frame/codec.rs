//! Writes and reads the fields of a frame.

/// Length of the length field.
pub const HEADER_BYTES: usize = 4;

/// A name or value of the operating system: bytes without NUL.
pub type OsBytes = Vec<u8>;

/// The bytes are not a valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Leaves room for the length, which `finish` fills in.
    pub(super) fn frame() -> Self {
        Self { bytes: vec![0; HEADER_BYTES] }
    }

    pub(super) fn tag(&mut self, tag: u8) -> &mut Self {
        self.u8(tag)
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.length(value.len()).bytes.extend_from_slice(value);
        self
    }

    pub(super) fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) -> &mut Self {
        self.length(items.len());
        items.iter().for_each(|item| write(self, item));
        self
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl Fn(&mut Self, T)) -> &mut Self {
        self.u8(u8::from(value.is_some()));
        value.into_iter().for_each(|value| write(self, value));
        self
    }

    /// Saturates: the reader's bound refuses a frame of such a length, so it is never misread.
    fn length(&mut self, length: usize) -> &mut Self {
        self.u32(u32::try_from(length).unwrap_or(u32::MAX))
    }

    /// Ends a chain of writes where a unit value is expected.
    pub(super) fn done(&mut self) {}

    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len() - HEADER_BYTES).unwrap_or(u32::MAX);
        self.bytes[..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        self.bytes
    }
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Accepts only 0 and 1, so that every order has exactly one encoding.
    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        self.take(length)
    }

    /// Reads bytes for the operating system: a NUL would cut them short.
    pub(super) fn os_bytes(&mut self) -> Result<OsBytes, Malformed> {
        let bytes = self.bytes()?;
        if bytes.contains(&0) { Err(Malformed) } else { Ok(bytes.to_vec()) }
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        std::str::from_utf8(self.bytes()?).map(str::to_owned).map_err(|_| Malformed)
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        self.flag()?.then(|| read(self)).transpose()
    }

    /// Does not allocate for the count in advance, which may be wrong: every item takes at least one length from the
    /// bytes that are really there.
    pub(super) fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

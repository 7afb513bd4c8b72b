//! The wire format of Protocol Buffers: a sequence of numbered fields.

/// The content of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A number of fixed size, which no supported message has.
    Fixed,
    /// Absent.
    Absent,
}

/// The bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// The fields of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Content<'a>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry().ok_or(Broken);
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

impl<'a> Fields<'a> {
    fn entry(&mut self) -> Option<(u64, Content<'a>)> {
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => Content::Number(self.varint()?),
            1 => self.take(8).map(|_| Content::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Content::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Content::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, content))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

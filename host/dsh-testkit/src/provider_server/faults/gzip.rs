//! Bytes as gzip (RFC 1952), stored and not compressed: what a test needs of it.

/// The most that a stored block holds (RFC 1951, 3.2.4).
const STORED: usize = 0xffff;

/// `bytes` as a gzip member.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let blocks = bytes.chunks(STORED).count();
    for (at, block) in bytes.chunks(STORED).enumerate() {
        let length = u16::try_from(block.len()).expect("a block is no longer");
        out.push(u8::from(at + 1 == blocks));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(block);
    }
    out.extend(crc32(bytes).to_le_bytes());
    out.extend(u32::try_from(bytes.len()).unwrap_or_default().to_le_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_that_of_everybody() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}

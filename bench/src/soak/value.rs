use byteorder::{BigEndian, ByteOrder, LittleEndian};

use super::history::{Key, Stamp};
use crate::random::{bytes_of, number};

pub(super) const HEAD_BYTES: usize = 16;

pub(super) fn key(thread: usize, index: u64) -> Key {
    let mut key = vec![0; 6];
    key[0] = number(1, index) as u8 % 16;
    key[1] = thread as u8;
    BigEndian::write_u32(&mut key[2..], index as u32);
    key.resize(6 + (index % 29) as usize, b'.');
    key
}

pub(super) fn owner(key: &[u8]) -> Option<usize> {
    key.get(1).map(|thread| usize::from(*thread))
}

pub(super) fn value(key: &[u8], stamp: Stamp) -> Vec<u8> {
    let mut value = vec![0; stamp.len.max(HEAD_BYTES)];
    let sum = key.iter().fold(key.len() as u64, |sum, byte| number(sum >> 40, sum ^ u64::from(*byte)));
    LittleEndian::write_u64(&mut value, stamp.batch);
    LittleEndian::write_u32(&mut value[8..], stamp.len as u32);
    LittleEndian::write_u32(&mut value[12..], sum as u32);
    for (at, part) in value[HEAD_BYTES..].chunks_mut(8).enumerate() {
        let word = if at % 2 == 0 { number(at as u64, stamp.batch) } else { sum };
        part.copy_from_slice(&bytes_of(word)[..part.len()]);
    }
    value
}

pub(super) fn stamp(key: &[u8], found: &[u8]) -> Result<Stamp, String> {
    let wrong = || format!("the value of {key:?} was never written: {} bytes", found.len());
    if found.len() < HEAD_BYTES {
        return Err(wrong());
    }
    let stamp =
        Stamp { batch: LittleEndian::read_u64(found), len: LittleEndian::read_u32(&found[8..]) as usize };
    if stamp.len == found.len() && value(key, stamp) == found { Ok(stamp) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_a_changed_byte_or_of_another_key_is_noticed() {
        let (key, other) = (key(3, 7), key(3, 8));
        assert_eq!(owner(&key), Some(3));
        let right = Stamp { batch: 9, len: 50 };
        let mut bytes = value(&key, right);
        assert_eq!(stamp(&key, &bytes), Ok(right));
        assert!(stamp(&other, &bytes).is_err());
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(stamp(&key, &bytes).is_err(), "byte {at}");
            bytes[at] ^= 1;
        }
        assert!(stamp(&key, &bytes[..49]).is_err());
    }
}

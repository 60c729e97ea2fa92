//! Chance that is the same for the same seed, everywhere: SplitMix64.

/// A generator of numbers.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// Neighbouring seeds give unrelated numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    ///
    /// # Panics
    /// When `n` is 0: no number is below it.
    pub fn below(&mut self, n: u32) -> u32 {
        u32::try_from(self.next() % u64::from(n)).expect("invariant: it is below a `u32`")
    }

    /// A place in a list of `len`, 0 when it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.next() % (len.max(1) as u64)).expect("invariant: it is below a `usize`")
    }

    /// Any number.
    pub fn word(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).expect("invariant: it has 32 bits")
    }

    /// Yes, once in `n` times; never when `n` is 0.
    pub fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// One of some.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut chance = Chance::new(1_234_567);
        let numbers: Vec<u64> = std::iter::repeat_with(|| chance.next()).take(3).collect();
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn every_number_below_and_nothing_else_comes() {
        let mut chance = Chance::new(0);
        let mut seen = [0; 4];
        (0..400).for_each(|_| seen[chance.below(4) as usize] += 1);
        assert!(seen.iter().all(|count| (60..140).contains(count)), "{seen:?}");
        assert!(!(0..100).any(|_| chance.one_in(0)));
        assert!((0..100).all(|_| chance.one_in(1)));
        assert_eq!(chance.pick(&["a"]), "a");
    }
}

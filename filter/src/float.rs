//! The `f64` functions that need a standard library, from `libm`.
//!
//! Only planning uses them. The last digit of a plan may depend on the library.

pub(crate) trait Float {
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn exp_m1(self) -> Self;
    fn floor(self) -> Self;
    fn fract(self) -> Self;
    fn ln_1p(self) -> Self;
    fn log2(self) -> Self;
    fn powf(self, power: Self) -> Self;
    fn round(self) -> Self;
    fn sqrt(self) -> Self;
}

impl Float for f64 {
    fn exp(self) -> Self {
        libm::exp(self)
    }

    fn exp2(self) -> Self {
        libm::exp2(self)
    }

    fn exp_m1(self) -> Self {
        libm::expm1(self)
    }

    fn floor(self) -> Self {
        libm::floor(self)
    }

    fn fract(self) -> Self {
        self - libm::trunc(self)
    }

    fn ln_1p(self) -> Self {
        libm::log1p(self)
    }

    fn log2(self) -> Self {
        libm::log2(self)
    }

    fn powf(self, power: Self) -> Self {
        libm::pow(self, power)
    }

    fn round(self) -> Self {
        libm::round(self)
    }

    fn sqrt(self) -> Self {
        libm::sqrt(self)
    }
}

#[cfg(test)]
mod tests {
    use super::Float;

    #[test]
    fn the_functions_are_those_of_the_standard_library() {
        let near = |one: f64, other: f64| (one - other).abs() <= 1e-14 * other.abs();
        for x in (1..400).map(|step| f64::from(step) * 0.113 - 20.05) {
            assert!(near(Float::exp(x), x.exp()) && near(Float::exp2(x), x.exp2()));
            assert!(near(Float::exp_m1(x), x.exp_m1()), "{x}");
            assert_eq!((Float::floor(x), Float::fract(x)), (x.floor(), x.fract()));
            assert_eq!(Float::round(x), x.round());
            let x = x.abs();
            assert!(near(Float::ln_1p(x), x.ln_1p()) && near(Float::log2(x), x.log2()), "{x}");
            assert!(near(Float::powf(x, 1.7), x.powf(1.7)));
            // `libm` uses an instruction that Miri does not support.
            assert!(cfg!(miri) || Float::sqrt(x) == x.sqrt());
        }
    }
}

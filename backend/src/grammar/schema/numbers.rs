//! Numbers that the compiler can take. It calculates with bounds in `f64` and `i64` and with steps in `u32`, and minds the overflow of none: −2⁶³ sends
//! it into endless recursion, and the common multiple of two steps may wrap around to a smaller one.

use protocol::Object;
use serde_json::{Number, Value};

/// Up to here, either way, a whole number and its neighbours are exact in `f64`.
const LARGEST_EXACT: i64 = 1 << 53;

/// All remainders that numbers of a schema may leave. The compiler keeps each apart, some states for one.
pub(super) const MOST_REMAINDERS: u64 = 4096;
/// The largest common multiple of steps that may meet. Its square is still a `u32`.
const LARGEST_COMMON: u64 = MOST_REMAINDERS;

/// How many remainders a number may leave that is to be a multiple of the step.
pub(super) fn remainders(step: &Number) -> u64 {
    Common::of(step).map_or(u64::MAX, |common| common.units)
}

/// Are all numbers in the value held exactly?
pub(super) fn are_exact(value: &Value) -> bool {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Number(number) if !is_exact(number) => return false,
            Value::Array(list) => open.extend(list),
            Value::Object(object) => open.extend(object.values()),
            _ => {}
        }
    }
    true
}

fn is_exact(number: &Number) -> bool {
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => whole.unsigned_abs() <= LARGEST_EXACT.unsigned_abs(),
        (None, Some(float)) => float.abs() < 1e15,
        (None, None) => false,
    }
}

/// Can the number be the value of this keyword, a bound? Larger ones only where no 1 is added to them and nothing is rounded: 2⁶³ − 1 is common.
pub(super) fn can_bound(schema: &Object, keyword: &str, number: &Number) -> bool {
    let excluding = match keyword {
        "minimum" => schema.get("exclusiveMinimum"),
        "maximum" => schema.get("exclusiveMaximum"),
        _ => Some(&Value::Bool(true)),
    };
    let includes = excluding != Some(&Value::Bool(true));
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), Some(float)) => {
            whole.unsigned_abs() <= LARGEST_EXACT.unsigned_abs()
                || (includes && whole > i64::MIN && float as i64 == whole)
        }
        (None, Some(float)) => float.abs() <= LARGEST_EXACT as f64,
        (_, None) => false,
    }
}

/// What all values of `multipleOf` that may meet in one value have as their least common multiple, in units of `10^-digits`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    units: u64,
    digits: u32,
}

impl Common {
    /// The step of an integer, which any of the others may meet.
    pub(super) const ONE: Common = Common {
        units: 1,
        digits: 0,
    };

    /// With one more; `None` where it becomes too large.
    pub(super) fn with(self, step: &Number) -> Option<Common> {
        let step = Common::of(step)?;
        let digits = self.digits.max(step.digits);
        let scaled = |common: Common| {
            let factor = 10u64.checked_pow(digits - common.digits)?;
            common.units.checked_mul(factor)
        };
        let (one, other) = (scaled(self)?, scaled(step)?);
        let units = (one / greatest_common_divisor(one, other)).checked_mul(other)?;
        (units <= LARGEST_COMMON).then_some(Common { units, digits })
    }

    /// As the compiler reads it.
    fn of(step: &Number) -> Option<Common> {
        let mut value = step.as_f64().filter(|value| *value > 0.0)?;
        let mut digits = 0;
        while value.fract() != 0.0 && digits < 9 {
            value *= 10.0;
            digits += 1;
        }
        let is_whole = value.fract() == 0.0 && value <= LARGEST_COMMON as f64;
        // Whole and in range, so that nothing is lost.
        is_whole.then_some(Common {
            units: value as u64,
            digits,
        })
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn common_multiples_are_exact_or_refused() {
        for (steps, expected) in [
            (json!([4, 6]), Some((12, 0))),
            (json!([0.5, 0.75]), Some((300, 2))),
            (json!([0.01, 1]), Some((100, 2))),
            (json!([4_096, 4_096]), Some((4_096, 0))),
            (json!([4_097]), None),
            (json!([255, 256, 257]), None),
            (json!([1e-300]), None),
            (json!([1e300]), None),
        ] {
            let steps = steps.as_array().unwrap().iter();
            let mut steps = steps.map(|step| step.as_number().unwrap());
            let common = steps.try_fold(Common::ONE, |common, step| common.with(step));
            let common = common.map(|common| (common.units, common.digits));
            assert_eq!(common, expected);
        }
    }
}

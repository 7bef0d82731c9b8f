//! What a request wants of the fake model server, spelled as a model's name: `text-200-50hz-native-plain`.

use std::{fmt, str::FromStr};

use anyhow::{Context, Error, Result, bail};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Reasoning,
    Text,
    Arguments,
}

/// How the deltas are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pace {
    /// As fast as the connection takes them, many in one HTTP chunk.
    Batched,
    /// As fast as the connection takes them, each in an HTTP chunk of its own.
    Single,
    /// So many a second, each with the moment it left.
    Hertz(u32),
}

/// Which server the stream looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Complete: numbers, indexes, log probabilities.
    Native,
    /// llama-server's: none of these, and every item ends at the end.
    Llama,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The terminal event and the end of the body in one write.
    Plain,
    /// `[DONE]` and the end of the body a little later.
    LateDone,
    /// The connection breaks after the last delta.
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    pub kind: Kind,
    pub deltas: u32,
    pub pace: Pace,
    pub shape: Shape,
    pub ending: Ending,
}

impl Plan {
    pub fn native(kind: Kind, deltas: u32, pace: Pace) -> Self {
        Self {
            kind,
            deltas,
            pace,
            shape: Shape::Native,
            ending: Ending::Plain,
        }
    }

    pub fn llama(self) -> Self {
        Self {
            shape: Shape::Llama,
            ..self
        }
    }

    pub fn ending(self, ending: Ending) -> Self {
        Self { ending, ..self }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Reasoning => "reasoning",
            Kind::Text => "text",
            Kind::Arguments => "arguments",
        };
        let shape = match self.shape {
            Shape::Native => "native",
            Shape::Llama => "llama",
        };
        let ending = match self.ending {
            Ending::Plain => "plain",
            Ending::LateDone => "late",
            Ending::Cut => "cut",
        };
        write!(formatter, "{kind}-{}-", self.deltas)?;
        match self.pace {
            Pace::Batched => formatter.write_str("batched")?,
            Pace::Single => formatter.write_str("single")?,
            Pace::Hertz(rate) => write!(formatter, "{rate}hz")?,
        }
        write!(formatter, "-{shape}-{ending}")
    }
}

impl FromStr for Plan {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let parts: Vec<&str> = name.split('-').collect();
        let [kind, deltas, pace, shape, ending] = parts[..] else {
            bail!("{name:?} is no plan");
        };
        Ok(Self {
            kind: match kind {
                "reasoning" => Kind::Reasoning,
                "text" => Kind::Text,
                "arguments" => Kind::Arguments,
                other => bail!("{other:?} is no kind of delta"),
            },
            deltas: deltas.parse().context("the number of deltas")?,
            pace: match pace {
                "batched" => Pace::Batched,
                "single" => Pace::Single,
                rate => Pace::Hertz(rate.trim_end_matches("hz").parse().context("the pace")?),
            },
            shape: match shape {
                "native" => Shape::Native,
                "llama" => Shape::Llama,
                other => bail!("{other:?} is no shape"),
            },
            ending: match ending {
                "plain" => Ending::Plain,
                "late" => Ending::LateDone,
                "cut" => Ending::Cut,
                other => bail!("{other:?} is no ending"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_being_a_model_name() -> Result<()> {
        for pace in [Pace::Batched, Pace::Single, Pace::Hertz(50)] {
            for ending in [Ending::Plain, Ending::LateDone, Ending::Cut] {
                let plan = Plan::native(Kind::Arguments, 7, pace)
                    .llama()
                    .ending(ending);
                assert_eq!(plan.to_string().parse::<Plan>()?, plan);
            }
        }
        Ok(())
    }
}

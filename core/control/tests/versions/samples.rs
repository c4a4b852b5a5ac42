//! Values of any type that serde knows, made without knowing the type: every number in a value differs, and each enum takes its
//! variants in turn.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

/// Why a value cannot be made.
#[derive(Debug)]
pub struct NoSample(String);

impl fmt::Display for NoSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoSample {}

impl serde::de::Error for NoSample {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Which variants were taken of an enum, known by its name and how many it has.
#[derive(Debug, Default)]
struct Turns {
    next: u32,
    of: u32,
}

/// Makes values.
#[derive(Debug, Default)]
pub struct Samples {
    /// The last number of the value that is made.
    number: u64,
    /// Sequences have two elements and options something; otherwise both are empty.
    full: bool,
    /// The variant of the outermost enum, until it is taken.
    outermost: Option<u32>,
    enums: BTreeMap<(&'static str, u32), Turns>,
}

impl Samples {
    /// Values of each variant of an enum, or of any other type: a full one and an empty one, if they differ.
    pub fn of<T: DeserializeOwned + PartialEq>(&mut self) -> Vec<T> {
        let mut made = Vec::new();
        for variant in 0.. {
            let Some(full) = self.make::<T>(true, variant) else { return made };
            let empty = self.make::<T>(false, variant).filter(|empty| *empty != full);
            made.push(full);
            made.extend(empty);
            if self.outermost.take().is_some() {
                return made;
            }
        }
        made
    }

    fn make<T: DeserializeOwned>(&mut self, full: bool, variant: u32) -> Option<T> {
        (self.number, self.full, self.outermost) = (0, full, Some(variant));
        match T::deserialize(&mut *self) {
            Ok(value) => Some(value),
            Err(NoSample(reason)) if reason == NO_VARIANT => None,
            Err(NoSample(reason)) => panic!("{}: {reason}", std::any::type_name::<T>()),
        }
    }

    /// Enums of which some variants were not taken.
    pub fn incomplete(&self) -> Vec<&'static str> {
        let rest = self.enums.iter().filter(|(_, turns)| turns.next < turns.of);
        rest.map(|((name, _), _)| *name).collect()
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn length(&self) -> usize {
        if self.full { 2 } else { 0 }
    }
}

const NO_VARIANT: &str = "no such variant";

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
            let number = self.next();
            visitor.$visit(<$type>::try_from(number % 128).unwrap_or_default())
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Samples {
    type Error = NoSample;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoSample> {
        Err(NoSample("it does not say what it is".into()))
    }

    numbers! {
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_i128 visit_i128 i128,
        deserialize_u128 visit_u128 u128,
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_bool(self.full)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        let number = self.next() as f32;
        visitor.visit_f32(number + 0.5)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        let number = self.next() as f64;
        visitor.visit_f64(number + 0.5)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_char('c')
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        let number = self.next();
        visitor.visit_string(format!("t{number}"))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        let bytes = (0..self.length()).map(|_| (self.next() % 128) as u8).collect();
        visitor.visit_byte_buf(bytes)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        if self.full { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        let left = self.length();
        visitor.visit_seq(Elements { samples: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        visitor.visit_seq(Elements { samples: self, left: length })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        let left = self.length();
        visitor.visit_map(Elements { samples: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        let of = variants.len() as u32;
        let turns = self.enums.entry((name, of)).or_insert(Turns { next: 0, of });
        let variant = match self.outermost.take() {
            Some(chosen) if chosen >= of => return Err(NoSample(NO_VARIANT.into())),
            Some(chosen) => {
                turns.next = turns.next.max(chosen + 1);
                chosen
            }
            None => {
                turns.next += 1;
                (turns.next - 1) % of
            }
        };
        visitor.visit_enum(Variant { samples: self, variant })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoSample> {
        Err(NoSample("an identifier outside an enum".into()))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoSample> {
        Err(NoSample("something that is ignored".into()))
    }
}

struct Elements<'a> {
    samples: &'a mut Samples,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = NoSample;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, NoSample> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.samples).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Elements<'_> {
    type Error = NoSample;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, NoSample> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, NoSample> {
        seed.deserialize(&mut *self.samples)
    }
}

struct Variant<'a> {
    samples: &'a mut Samples,
    variant: u32,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = NoSample;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), NoSample> {
        let index: U32Deserializer<NoSample> = self.variant.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = NoSample;

    fn unit_variant(self) -> Result<(), NoSample> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, NoSample> {
        seed.deserialize(self.samples)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        self.samples.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        self.samples.deserialize_tuple(fields.len(), visitor)
    }
}

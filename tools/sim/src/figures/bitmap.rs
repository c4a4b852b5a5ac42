//! PNG backend of plotters, which paints into memory.
//!
//! Plotters' own defaults rasterise shapes. The font consists of ready-made rasters, so figures look the same
//! on machines without fonts.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, RasterizedChar, get_raster};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

/// An image of red, green and blue bytes.
pub(super) struct Bitmap {
    width: u32,
    height: u32,
    bytes: Vec<u8>,
}

/// A view of an image that plotters may own.
pub(super) struct Canvas<'a>(&'a mut Bitmap);

type Outcome = Result<(), DrawingErrorKind<Infallible>>;

impl Bitmap {
    /// A white image.
    pub(super) fn new((width, height): (u32, u32)) -> Self {
        Self { width, height, bytes: vec![255; width as usize * height as usize * 3] }
    }

    pub(super) fn canvas(&mut self) -> Canvas<'_> {
        Canvas(self)
    }

    /// Writes the image as PNG.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let file = io::BufWriter::new(std::fs::File::create(path)?);
        let mut encoder = png::Encoder::new(file, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.bytes)?;
        Ok(writer.finish()?)
    }

    /// Blends a colour over a pixel with weight `alpha`; pixels outside of the image are ignored.
    fn blend(&mut self, (x, y): BackendCoord, (red, green, blue): (u8, u8, u8), alpha: f64) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
        if x >= self.width || y >= self.height {
            return;
        }
        let at = (y as usize * self.width as usize + x as usize) * 3;
        for (byte, colour) in self.bytes[at..at + 3].iter_mut().zip([red, green, blue]) {
            let mixed = f64::from(*byte) * (1.0 - alpha) + f64::from(colour) * alpha;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let mixed = mixed.round() as u8;
            *byte = mixed;
        }
    }
}

/// The available letter height nearest to the one that plotters asks for.
fn height(size: f64) -> RasterHeight {
    let all = [RasterHeight::Size16, RasterHeight::Size24, RasterHeight::Size32];
    let far = |height: &RasterHeight| (height.val() as f64 - size).abs();
    all.into_iter().min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(RasterHeight::Size24)
}

/// The letters of a text; question marks replace those that the font lacks.
fn letters(text: &str, height: RasterHeight) -> impl Iterator<Item = RasterizedChar> {
    let raster = move |letter| get_raster(letter, FontWeight::Regular, height);
    text.chars().filter_map(move |letter| raster(letter).or_else(|| raster('?')))
}

fn extent(text: &str, height: RasterHeight) -> (i32, i32) {
    let width: usize = letters(text, height).map(|letter| letter.width()).sum();
    (i32::try_from(width).unwrap_or(i32::MAX), i32::try_from(height.val()).unwrap_or(i32::MAX))
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.0.width, self.0.height)
    }

    fn ensure_prepared(&mut self) -> Outcome {
        Ok(())
    }

    fn present(&mut self) -> Outcome {
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Outcome {
        self.0.blend(point, color.rgb, color.alpha);
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        at: BackendCoord,
    ) -> Outcome {
        let (colour, height) = (style.color(), height(style.size()));
        let (width, tall) = extent(text, height);
        let anchor = style.anchor();
        let left = match anchor.h_pos {
            HPos::Left => 0,
            HPos::Center => -width / 2,
            HPos::Right => -width,
        };
        let top = match anchor.v_pos {
            VPos::Top => 0,
            VPos::Center => -tall / 2,
            VPos::Bottom => -tall,
        };
        let turn = style.transform();
        let mut from = left;
        for letter in letters(text, height) {
            for (y, row) in (top..).zip(letter.rows()) {
                for (x, &intensity) in (from..).zip(row) {
                    let (x, y) = turn.transform(x, y);
                    let alpha = colour.alpha * f64::from(intensity) / 255.0;
                    self.0.blend((at.0 + x, at.1 + y), colour.rgb, alpha);
                }
            }
            from += i32::try_from(letter.width()).unwrap_or(0);
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let (width, height) = extent(text, height(style.size()));
        Ok((width.unsigned_abs(), height.unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixel(bitmap: &Bitmap, x: u32, y: u32) -> [u8; 3] {
        let at = ((y * bitmap.width + x) * 3) as usize;
        [bitmap.bytes[at], bitmap.bytes[at + 1], bitmap.bytes[at + 2]]
    }

    #[test]
    fn colours_are_laid_over_one_another_and_nothing_lies_outside() {
        let mut bitmap = Bitmap::new((3, 2));
        bitmap.blend((1, 1), (0, 100, 255), 1.0);
        bitmap.blend((2, 0), (55, 255, 255), 0.5);
        for outside in [(-1, 0), (0, -1), (3, 0), (0, 2), (i32::MAX, i32::MIN)] {
            bitmap.blend(outside, (0, 0, 0), 1.0);
        }
        let all = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)];
        let found = all.map(|(x, y)| pixel(&bitmap, x, y));
        let white = [255; 3];
        assert_eq!(found, [white, white, [155, 255, 255], white, [0, 100, 255], white]);
    }

    #[test]
    fn every_letter_has_a_raster() {
        let height = height(24.0);
        assert_eq!(letters("RETR, 7.10 / max", height).count(), 16);
        let unknown: Vec<usize> = letters("木", height).map(|letter| letter.width()).collect();
        assert_eq!(unknown, letters("?", height).map(|letter| letter.width()).collect::<Vec<_>>());
    }
}

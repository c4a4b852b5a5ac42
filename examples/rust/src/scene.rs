//! A small ray tracer: mirror balls on a chequered floor under one lamp.
//!
//! Only additions, multiplications, divisions and square roots are used, which IEEE 754 defines to
//! the last bit: every rank of any machine gets the same pixels.

use std::ops::{Add, Mul, Neg, Sub};

use crate::random::Random;

/// A point, a direction, or a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Vector(f64, f64, f64);

impl Add for Vector {
    type Output = Vector;
    fn add(self, b: Vector) -> Vector {
        Vector(self.0 + b.0, self.1 + b.1, self.2 + b.2)
    }
}

impl Sub for Vector {
    type Output = Vector;
    fn sub(self, b: Vector) -> Vector {
        Vector(self.0 - b.0, self.1 - b.1, self.2 - b.2)
    }
}

impl Mul<f64> for Vector {
    type Output = Vector;
    fn mul(self, by: f64) -> Vector {
        Vector(self.0 * by, self.1 * by, self.2 * by)
    }
}

impl Neg for Vector {
    type Output = Vector;
    fn neg(self) -> Vector {
        self * -1.0
    }
}

impl Vector {
    fn dot(self, b: Vector) -> f64 {
        self.0 * b.0 + self.1 * b.1 + self.2 * b.2
    }

    fn unit(self) -> Vector {
        self * (1.0 / self.dot(self).sqrt())
    }

    /// Element by element: light of one colour on a surface of another.
    fn tint(self, b: Vector) -> Vector {
        Vector(self.0 * b.0, self.1 * b.1, self.2 * b.2)
    }

    fn mirror(self, normal: Vector) -> Vector {
        self - normal * (2.0 * self.dot(normal))
    }
}

#[derive(Clone, Copy, Debug)]
struct Ball {
    centre: Vector,
    radius: f64,
    colour: Vector,
    /// Share of the light that is mirrored.
    gloss: f64,
}

/// Where a ray meets something.
struct Hit {
    distance: f64,
    point: Vector,
    normal: Vector,
    colour: Vector,
    gloss: f64,
}

/// The point that the camera looks at.
#[derive(Debug)]
pub struct Scene {
    balls: Vec<Ball>,
}

/// The picture's size and quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Rays per pixel in each of the two directions.
    pub samples: usize,
}

const EYE: Vector = Vector(0.0, 2.2, -9.0);
const LAMP: Vector = Vector(-6.0, 9.0, -5.0);
/// Mirrors that a ray follows.
const DEPTH: u32 = 6;
/// Keeps a ray that leaves a surface from meeting it again.
const SKIN: f64 = 1e-6;

impl Scene {
    /// One large ball with small ones around it; their places are drawn from a fixed seed.
    #[must_use]
    pub fn new() -> Self {
        let mut random = Random::new(314_159_265);
        let mut balls = vec![Ball {
            centre: Vector(0.0, 1.6, 1.0),
            radius: 1.6,
            colour: Vector(0.95, 0.95, 1.0),
            gloss: 0.75,
        }];
        while balls.len() < 40 {
            let radius = 0.2 + 0.35 * random.unit();
            let ball = Ball {
                centre: Vector(11.0 * random.unit() - 5.5, radius, 9.0 * random.unit() - 4.5),
                radius,
                colour: Vector(
                    0.25 + 0.75 * random.unit(),
                    0.25 + 0.75 * random.unit(),
                    0.25 + 0.75 * random.unit(),
                ),
                gloss: 0.15 + 0.35 * random.unit(),
            };
            let apart = |other: &Ball| {
                let between = ball.centre - other.centre;
                between.dot(between).sqrt() > ball.radius + other.radius
            };
            if balls.iter().all(apart) {
                balls.push(ball);
            }
        }
        Self { balls }
    }

    /// The rows `first..end` of the picture: three bytes (red, green, blue) for each pixel.
    #[must_use]
    pub fn render(&self, view: View, first: usize, end: usize) -> Vec<u8> {
        let mut pixels = Vec::with_capacity((end - first) * view.width * 3);
        for row in first..end {
            for column in 0..view.width {
                let colour = self.pixel(view, row, column);
                for part in [colour.0, colour.1, colour.2] {
                    // A square root instead of the usual power of 1/2.2: exact everywhere.
                    pixels.push((part.clamp(0.0, 1.0).sqrt() * 255.0) as u8);
                }
            }
        }
        pixels
    }

    fn pixel(&self, view: View, row: usize, column: usize) -> Vector {
        let mut sum = Vector::default();
        let samples = view.samples as f64;
        for sample in 0..view.samples * view.samples {
            let (across, down) = (sample % view.samples, sample / view.samples);
            let x = column as f64 + (across as f64 + 0.5) / samples - view.width as f64 / 2.0;
            let y = view.height as f64 / 2.0 - row as f64 - (down as f64 + 0.5) / samples;
            let direction = Vector(x, y - 0.08 * view.height as f64, 1.3 * view.height as f64);
            sum = sum + self.trace(EYE, direction.unit(), DEPTH);
        }
        sum * (1.0 / (samples * samples))
    }

    fn trace(&self, from: Vector, direction: Vector, depth: u32) -> Vector {
        let Some(hit) = self.nearest(from, direction) else {
            let height = direction.1.max(0.0);
            return Vector(0.55, 0.7, 0.95) * (1.0 - height) + Vector(0.1, 0.25, 0.6) * height;
        };
        let to_lamp = LAMP - hit.point;
        let lamp_distance = to_lamp.dot(to_lamp).sqrt();
        let to_lamp = to_lamp * (1.0 / lamp_distance);
        let start = hit.point + hit.normal * SKIN;
        let mut light = 0.12;
        if self.nearest(start, to_lamp).is_none_or(|blocker| blocker.distance > lamp_distance) {
            light += 0.88 * hit.normal.dot(to_lamp).max(0.0);
        }
        let own = hit.colour * light;
        if depth == 0 || hit.gloss == 0.0 {
            return own;
        }
        let mirrored = self.trace(start, direction.mirror(hit.normal), depth - 1);
        own * (1.0 - hit.gloss) + mirrored.tint(hit.colour) * hit.gloss
    }

    fn nearest(&self, from: Vector, direction: Vector) -> Option<Hit> {
        let mut nearest: Option<(f64, &Ball)> = None;
        for ball in &self.balls {
            let to_centre = ball.centre - from;
            let along = to_centre.dot(direction);
            let inside = ball.radius * ball.radius - to_centre.dot(to_centre) + along * along;
            if inside < 0.0 {
                continue;
            }
            let distance = along - inside.sqrt();
            if distance > SKIN && nearest.is_none_or(|(best, _)| distance < best) {
                nearest = Some((distance, ball));
            }
        }
        let floor = -from.1 / direction.1;
        if direction.1 < 0.0 && nearest.is_none_or(|(best, _)| floor < best) {
            return Some(floor_hit(from, direction, floor));
        }
        nearest.map(|(distance, ball)| {
            let point = from + direction * distance;
            let normal = (point - ball.centre).unit();
            Hit { distance, point, normal, colour: ball.colour, gloss: ball.gloss }
        })
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

fn floor_hit(from: Vector, direction: Vector, distance: f64) -> Hit {
    let point = from + direction * distance;
    let even = (point.0.floor() + point.2.floor()).rem_euclid(2.0) == 0.0;
    let colour = if even { Vector(0.85, 0.82, 0.75) } else { Vector(0.25, 0.28, 0.3) };
    Hit { distance, point, normal: -Vector(0.0, -1.0, 0.0), colour, gloss: 0.1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: View = View { width: 40, height: 24, samples: 1 };

    #[test]
    fn parts_make_the_whole() {
        let scene = Scene::new();
        let whole = scene.render(VIEW, 0, 24);
        let parts = [scene.render(VIEW, 0, 5), scene.render(VIEW, 5, 24)].concat();
        assert_eq!(whole.len(), 40 * 24 * 3);
        assert_eq!(whole, parts);
    }

    #[test]
    fn sky_above_floor_below() {
        let scene = Scene::new();
        let top = scene.render(VIEW, 0, 1);
        let bottom = scene.render(VIEW, 23, 24);
        assert!(top[2] > top[0], "the sky is blue: {:?}", &top[..3]);
        assert!(bottom[0] >= bottom[2], "the floor is not: {:?}", &bottom[..3]);
    }
}

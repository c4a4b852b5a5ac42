//! Code that the example programs share: their numeric kernels, as functions that know nothing of jobs,
//! and the few lines around them.
//!
//! | module | program |
//! |---|---|
//! | [`ep`] | `ep`: NAS kernel EP, random pairs |
//! | [`fft`], [`ft`] | `ft`: NAS kernel FT, a partial differential equation by 3-D Fourier transforms |
//! | [`scene`], [`picture`] | `raytracer`: a picture that grows |
//! | [`dense`] | `dense`: reads of memory whose owner computes; LU, matrix product, bitonic sort |
//! | [`measure`] | `pingpong`, `lockstep` |
//! | [`program`], [`random`] | all |

#![forbid(unsafe_code)]

pub mod dense;
pub mod ep;
pub mod fft;
pub mod ft;
pub mod measure;
pub mod picture;
pub mod program;
pub mod random;
pub mod scene;

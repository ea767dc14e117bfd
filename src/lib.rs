//! Soybean.

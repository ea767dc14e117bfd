//! The gradients that a training step keeps for the host, among the states of a program.

use crate::Tables;

/// The end of their names: `<parameter>.gradient`, `<input>.gradient`.
const GRADIENT: &str = ".gradient";

impl Tables {
    /// Returns the names of the parameters and inputs whose gradients are kept, with the numbers of
    /// the gradients in [`Self::states`].
    pub fn kept_gradients(&self) -> impl Iterator<Item = (&str, usize)> {
        let states = self.states.iter().enumerate();
        states.filter_map(|(number, it)| Some((it.name.strip_suffix(GRADIENT)?, number)))
    }

    /// Returns true if training steps keep gradients and change no parameter.
    #[must_use]
    pub fn is_updated_by_host(&self) -> bool {
        if self.kept_gradients().next().is_none() {
            return false;
        }
        let mut trained = self.parameters.iter().filter(|it| it.is_trained);
        trained.all(|it| self.kept_gradients().any(|(name, _)| name == it.name))
    }
}

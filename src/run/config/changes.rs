//! The differences between the settings of a run and those with which it resumes.

use super::{TrainConfig, file::value, settings::settings};

/// Settings that say where the run is and how it starts, not what it does.
const OF_START: [&str; 2] = ["out", "resume"];

impl TrainConfig {
    /// Lists the settings that differ from earlier ones, such as `epochs = 60 (was 20)`.
    pub(crate) fn changes_since(&self, earlier: &Self) -> Vec<String> {
        let text = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let mut changes = Vec::new();
        for setting in settings().filter(|it| !OF_START.contains(&it.name)) {
            let (now, before) = (value(&setting.key, self), value(&setting.key, earlier));
            if now != before {
                changes.push(format!("{} = {} (was {})", setting.name, text(now), text(before)));
            }
        }
        changes
    }

    /// Replaces the settings by those of an earlier run in the folder, except those of its start,
    /// and those that files do not have.
    ///
    /// # Errors
    /// As [`Self::from_toml`].
    pub(crate) fn with_run(self, config: &std::path::Path) -> Result<Self, soybean_runtime::Error> {
        // What the run left open has no key, and must not become the program's default.
        let of_run = Self::from_toml(config)?;
        let Self { out, resume, metrics, restore_best, .. } = self;
        Ok(Self { out, resume, metrics, restore_best, ..of_run })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Curve, Resume, Schedule};

    #[test]
    fn settings_that_a_run_left_open_stay_open() {
        let file = std::env::temp_dir().join(format!("left_open_{}.toml", std::process::id()));
        std::fs::write(&file, TrainConfig::new(3, 0.1).to_toml()).unwrap();
        let defaults = TrainConfig {
            steps: Some(600),
            patience: Some(5),
            restore_best: true,
            ..TrainConfig::new(20, 0.5)
        };
        let resumed = defaults.with_run(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((resumed.epochs, resumed.steps, resumed.patience), (3, None, None));
        assert!(resumed.restore_best);
    }

    #[test]
    fn changed_settings_are_listed_with_their_earlier_values() {
        let earlier = TrainConfig { patience: Some(3), ..TrainConfig::new(20, 0.1) };
        assert_eq!(earlier.changes_since(&earlier), [""; 0]);
        let schedule = Schedule { curve: Curve::Cosine, ..Schedule::default() };
        let resume = Resume::Auto;
        let now = TrainConfig { epochs: 60, patience: None, schedule, resume, ..earlier.clone() };
        assert_eq!(
            now.changes_since(&earlier),
            [
                "epochs = 60 (was 20)",
                "schedule = \"cosine\" (was \"constant\")",
                "patience = none (was 3)",
            ]
        );
    }
}

//! The differences between the settings of a run and those with which it resumes.

use super::{TrainConfig, file::value, setting::OnResume, settings::settings};

/// Returns all settings by name, as TOML, and whether they may differ in a resumed run.
pub(crate) fn setting_values(
    config: &TrainConfig,
) -> impl Iterator<Item = (&'static str, Option<String>, OnResume)> {
    settings().map(|it| (it.name, value(&it.key, config), it.on_resume))
}

/// Sets a setting as its flag does.
#[cfg(test)]
pub(crate) fn set_setting(config: &mut TrainConfig, name: &str, text: &str) -> Result<(), String> {
    let setting = settings().find(|it| it.name == name).ok_or_else(|| name.to_owned())?;
    (setting.set)(config, text)
}

impl TrainConfig {
    /// Lists the settings that differ from earlier ones, such as `epochs = 60 (was 20)`.
    pub(crate) fn changes_since(&self, earlier: &Self) -> Vec<String> {
        let text = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let mut changes = Vec::new();
        for setting in settings().filter(|it| it.on_resume != OnResume::Free) {
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
        let Self { out, resume, allowed_changes, metrics, restore_best, .. } = self;
        Ok(Self { out, resume, allowed_changes, metrics, restore_best, ..of_run })
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

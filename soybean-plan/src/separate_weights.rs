//! Which functions of a model are called several times, with weights of their own in each call.

/// The most functions that a text names.
const MAX_FUNCTIONS: usize = 4;

/// Returns the functions that are called several times with weights of their own, by the names of
/// all parameters: 3 calls of `dense`, 2 calls of `block.*.norm`. `None` if there are none.
///
/// ```
/// use soybean_plan::separate_weights;
///
/// let names = ["block.0.norm.0.w", "block.0.norm.1.w", "block.1.norm.0.w", "w.0", "w.1"];
/// let text = "2 calls of `block`, 2 calls of `block.*.norm`";
/// assert_eq!(separate_weights(names).as_deref(), Some(text));
/// assert_eq!(separate_weights(["dense.w", "w.0"]), None);
/// ```
#[must_use]
pub fn separate_weights<'a, I>(parameters: I) -> Option<String>
where
    I: IntoIterator<Item = &'a str>,
{
    let mut functions: Vec<(String, Vec<&'a str>)> = Vec::new();
    for name in parameters {
        let parts: Vec<&'a str> = name.split('.').collect();
        // Numbers at the end are rounds of loops, in which the parameter itself is made.
        let n_parts = parts.iter().rposition(|it| !is_number(it)).unwrap_or(0);
        for at in (1..n_parts).filter(|&it| is_number(parts[it])) {
            let part = |it: &&str| if is_number(it) { "*".to_owned() } else { (*it).to_owned() };
            let path = parts[..at].iter().map(part).collect::<Vec<_>>().join(".");
            match functions.iter_mut().find(|it| it.0 == path) {
                Some((_, calls)) if calls.contains(&parts[at]) => {}
                Some((_, calls)) => calls.push(parts[at]),
                None => functions.push((path, vec![parts[at]])),
            }
        }
    }
    functions.retain(|(_, calls)| calls.len() > 1);
    let text = |(path, calls): &(String, Vec<&str>)| format!("{} calls of `{path}`", calls.len());
    let mut texts: Vec<String> = functions.iter().take(MAX_FUNCTIONS).map(text).collect();
    if functions.len() > MAX_FUNCTIONS {
        texts.push(format!("and of {} more functions", functions.len() - MAX_FUNCTIONS));
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit())
}

//! Connectionist temporal classification: losses of sequences whose labels have no places.

use soybean_plan::{Binary, Combine, IndexingForm, Register, Shape, Unary};

use super::{
    Arguments, Row, SampleArgument,
    cross_entropy::{Reduction, reduction_of},
    indexing, labels, layout, map, map_one, reduction, slicing, softmax,
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{elementwise::all_dims, iota::Iota, pad::Pad},
    scalar::{self, ScalarBuilder},
    value::Value,
};

const fn integers(shape: &'static [usize], n_classes: usize) -> SampleArgument {
    SampleArgument::Labels { shape, n_classes }
}

const ROWS: SampleArgument = SampleArgument::tensor(&[6, 2, 6]);
/// The numbers of frames, up to 6, and those of labels, up to 3.
const LENGTHS: [SampleArgument; 2] = [integers(&[2], 7), integers(&[2], 4)];

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "ctc_loss",
        doc: "The mean over the batch of `-log(p) / length`, with `p` the probability of a target `[n, s]` by log-probabilities `[t, n, classes]` and `length` its number of labels. Class 0 is blank.",
        arguments: &["log_probs", "targets", "input_lengths", "target_lengths"],
        build: |builder, arguments| {
            let options = Options { blank: 0, infinite: f64::INFINITY };
            let losses = Losses::new(builder, arguments, &options)?;
            Ok(Argument::Tensor(losses.reduced(builder, Reduction::Mean)))
        },
        samples: &[
            &[
                SampleArgument::tensor(&[2, 2, 4]),
                integers(&[2, 1], 4),
                integers(&[2], 3),
                integers(&[2], 2),
            ],
            &[ROWS, integers(&[2, 3], 6), LENGTHS[0], LENGTHS[1]],
        ],
    },
    Row {
        name: "ctc_loss_with",
        doc: "`ctc_loss` with PyTorch's options: the class `blank`, a `reduction` that is `\"mean\"`, `\"sum\"` or `\"none\"`, and `zero_infinity`: whether targets that are too long have the loss 0.",
        arguments: &[
            "log_probs",
            "targets",
            "input_lengths",
            "target_lengths",
            "blank",
            "reduction",
            "zero_infinity",
        ],
        build: |builder, arguments| {
            let reduction = reduction_of(arguments, 5)?;
            let infinite = if arguments.boolean(6)? { 0.0 } else { f64::INFINITY };
            let options = Options { blank: arguments.size(4, 0)?, infinite };
            let losses = Losses::new(builder, arguments, &options)?;
            Ok(Argument::Tensor(losses.reduced(builder, reduction)))
        },
        samples: &[
            // Some targets have too few frames.
            &[
                SampleArgument::tensor(&[2, 4, 6]),
                integers(&[4, 3], 6),
                integers(&[4], 3),
                integers(&[4], 4),
                SampleArgument::Integer(5),
                SampleArgument::Text("none"),
                SampleArgument::Boolean(true),
            ],
            &[
                ROWS,
                integers(&[2, 3], 6),
                LENGTHS[0],
                LENGTHS[1],
                SampleArgument::Integer(2),
                SampleArgument::Text("sum"),
                SampleArgument::Boolean(false),
            ],
        ],
    },
];

struct Options {
    blank: usize,
    /// The loss of a target that no alignment reaches.
    infinite: f64,
}

/// The logarithm of 0. The difference of two infinities would be no number.
const IMPOSSIBLE: f64 = -1e30;

/// The losses `[n]` of a batch, and the lengths of its targets.
struct Losses {
    losses: Value,
    target_lengths: Value,
}

/// The targets with a blank before and after each label: `2 s + 1` places.
struct Places {
    /// The class of each place, `[n, places]`.
    classes: Value,
    /// 1 where the class is another than two places before, `[n, places]`.
    is_other: Value,
    shape: Shape,
}

impl Losses {
    // The forward variables of an alignment's places, in logarithms. Source: Graves et al. 2006.
    //     a[t, l] = e[t, l] + log(e^a[t-1, l] + e^a[t-1, l-1] + e^a[t-1, l-2])
    // with e[t, l] the log-probability of the class of place l at frame t. The last term is there
    // if the classes of places l and l-2 differ.
    fn new(
        builder: &mut Builder,
        arguments: &Arguments<'_>,
        options: &Options,
    ) -> Result<Self, CallDiagnostic> {
        let rows = arguments.tensor(builder, 0)?;
        let of_rows = builder.shape(rows);
        let [n_frames, n, n_classes] = of_rows[..] else {
            let message =
                format!("the log-probabilities must be [frames, batch, classes], found {of_rows}");
            return Err(arguments.fault(0, message));
        };
        if options.blank >= n_classes {
            return Err(arguments.expected_number(
                4,
                &format!("one of {n_classes} classes"),
                options.blank,
            ));
        }
        let targets = labels::integers(builder, arguments, 1, "targets")?;
        let of_targets = builder.shape(targets);
        if of_targets.len() != 2 || of_targets[0] != n {
            let message = format!("the targets must be [{n}, labels], found {of_targets}");
            return Err(arguments.fault(1, message));
        }
        labels::limit(builder, arguments, 1, targets, n_classes)?;
        let input_lengths = lengths(builder, arguments, (2, "input lengths"), [n, n_frames])?;
        let target_lengths =
            lengths(builder, arguments, (3, "target lengths"), [n, of_targets[1]])?;
        let places = Places::new(builder, targets, options.blank);
        let emissions = places.emissions(builder, rows);
        let mut forward = places.before_the_first_frame(builder);
        for frame in 0..n_frames {
            let emission = slicing::part(builder, emissions, 0, frame, 1);
            let emission = layout::reshaped(builder, emission, places.shape);
            forward = places.next(builder, (forward, emission), (input_lengths, frame));
        }
        let losses = places.losses(builder, forward, target_lengths, options.infinite);
        Ok(Self { losses, target_lengths })
    }

    fn reduced(&self, builder: &mut Builder, reduction: Reduction) -> Value {
        match reduction {
            Reduction::None => self.losses,
            Reduction::Sum => reduction::reduce(builder, self.losses, Combine::Sum, &[]),
            // A target without labels counts as one with one.
            Reduction::Mean => {
                let mut it = ScalarBuilder::default();
                let (loss, length, one) = (it.input(0), it.float(1), it.constant(1.0));
                let length = it.binary(Binary::Maximum, length, one);
                let mean = it.div(loss, length);
                let shape = builder.shape(self.losses);
                let operands = [self.losses, self.target_lengths].map(|it| (it, vec![0]));
                let means = map(builder, shape, &operands, &it.finish(mean));
                reduction::mean_to(builder, means, &[])
            }
        }
    }
}

/// Returns a tensor `[n]` of lengths up to a bound.
fn lengths(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    (position, what): (usize, &str),
    [n, longest]: [usize; 2],
) -> Result<Value, CallDiagnostic> {
    let lengths = labels::integers(builder, arguments, position, what)?;
    let found = builder.shape(lengths);
    if found[..] != [n] {
        let message = format!("the {what} must be [{n}], one for each target, found {found}");
        return Err(arguments.fault(position, message));
    }
    labels::limit(builder, arguments, position, lengths, longest + 1)?;
    Ok(lengths)
}

impl Places {
    fn new(builder: &mut Builder, targets: Value, blank: usize) -> Self {
        let [n, n_labels] = builder.shape(targets)[..] else { unreachable!("[n, labels]") };
        let fill = blank as f64;
        let columns = layout::reshaped(builder, targets, Shape::new(&[n, n_labels, 1]));
        let pairs = Pad { low: vec![0, 0, 1], shape: Shape::new(&[n, n_labels, 2]), fill };
        let pairs = builder.graph.add(pairs.into(), &[columns]);
        let row = layout::reshaped(builder, pairs, Shape::new(&[n, 2 * n_labels]));
        let shape = Shape::new(&[n, 2 * n_labels + 1]);
        let classes = builder.graph.add(Pad { low: vec![0; 2], shape, fill }.into(), &[row]);
        let before = shifted(builder, classes, 2, fill);
        let mut it = ScalarBuilder::default();
        let (class, class_before, one) = (it.integer(0), it.integer(1), it.constant(1.0));
        let is_same = it.equal(class, class_before);
        let is_other = it.sub(one, is_same);
        let operands = [classes, before].map(|it| (it, all_dims(&shape)));
        let is_other = map(builder, shape, &operands, &it.finish(is_other));
        Self { classes, is_other, shape }
    }

    /// Returns the log-probabilities of the classes of all places, `[frames, n, places]`. The sum
    /// over no dim keeps them in single precision, because the forward variables are sums over all
    /// frames.
    fn emissions(&self, builder: &mut Builder, rows: Value) -> Value {
        let [n_frames, _, n_classes] = builder.shape(rows)[..] else { unreachable!("3 dims") };
        let shape: Shape = [n_frames].into_iter().chain(self.shape.iter().copied()).collect();
        let classes = [(self.classes, vec![1, 2])];
        let classes = map(builder, shape, &classes, &scalar::integer());
        let chosen =
            indexing::indexed(builder, IndexingForm::Gather, 2, n_classes, [classes, rows]);
        let mut it = ScalarBuilder::default();
        let (x, least) = (it.input(0), it.constant(IMPOSSIBLE));
        let limited = it.binary(Binary::Maximum, x, least);
        let limited = map_one(builder, chosen, &it.finish(limited));
        reduction::reduce(builder, limited, Combine::Sum, &all_dims(&shape))
    }

    /// Returns forward variables from which the first frame reaches the first two places.
    fn before_the_first_frame(&self, builder: &mut Builder) -> Value {
        let place = builder.graph.add(Iota::new(self.shape[1]).into(), &[]);
        let mut it = ScalarBuilder::default();
        let (place_of_x, first) = (it.integer(0), it.integer_constant(0));
        let is_first = it.equal(place_of_x, first);
        let (certain, impossible) = (it.constant(0.0), it.constant(IMPOSSIBLE));
        let variable = it.select(is_first, certain, impossible);
        map(builder, self.shape, &[(place, vec![1])], &it.finish(variable))
    }

    /// Returns the forward variables after a frame. Those of shorter inputs stay.
    fn next(
        &self,
        builder: &mut Builder,
        (forward, emission): (Value, Value),
        (input_lengths, frame): (Value, usize),
    ) -> Value {
        let before = [1, 2].map(|n| shifted(builder, forward, n, IMPOSSIBLE));
        let mut it = ScalarBuilder::default();
        let [same, one_before, two_before] = [0, 1, 2].map(|input| it.input(input));
        let (is_other, impossible) = (it.input(3), it.constant(IMPOSSIBLE));
        let two_before = it.select(is_other, two_before, impossible);
        let sum = log_sum_exp(&mut it, [same, one_before, two_before]);
        let emitted = it.input(4);
        let next = it.add(sum, emitted);
        let frame = i32::try_from(frame).expect("extents are below 2^31");
        let (length, frame) = (it.integer(5), it.integer_constant(frame));
        let is_inside = it.greater(length, frame);
        let next = it.select(is_inside, next, same);
        let space = all_dims(&self.shape);
        let of_places = [forward, before[0], before[1], self.is_other, emission];
        let operands = of_places.into_iter().map(|it| (it, space.clone()));
        let operands: Vec<_> = operands.chain([(input_lengths, vec![0])]).collect();
        map(builder, self.shape, &operands, &it.finish(next))
    }

    /// Returns the losses `[n]`: alignments end at the last label or at the blank behind it.
    fn losses(
        &self,
        builder: &mut Builder,
        forward: Value,
        target_lengths: Value,
        infinite: f64,
    ) -> Value {
        let place = builder.graph.add(Iota::new(self.shape[1]).into(), &[]);
        let mut it = ScalarBuilder::default();
        let (variable, place_of_x, length) = (it.input(0), it.integer(1), it.integer(2));
        let blank = it.binary(Binary::AddIntegers, length, length);
        let one = it.integer_constant(1);
        let label = it.binary(Binary::SubtractIntegers, blank, one);
        let ends = [blank, label].map(|end| it.equal(place_of_x, end));
        let (is_end, impossible) = (it.add(ends[0], ends[1]), it.constant(IMPOSSIBLE));
        let end = it.select(is_end, variable, impossible);
        let operands =
            [(forward, all_dims(&self.shape)), (place, vec![1]), (target_lengths, vec![0])];
        let ends = map(builder, self.shape, &operands, &it.finish(end));
        let likelihood = softmax::log_sum_exp_along(builder, ends, 1);
        let mut it = ScalarBuilder::default();
        let (x, bound, infinite) =
            (it.input(0), it.constant(0.5 * IMPOSSIBLE), it.constant(infinite));
        let (is_impossible, loss) = (it.greater(bound, x), it.unary(Unary::Negate, x));
        let loss = it.select(is_impossible, infinite, loss);
        map_one(builder, likelihood, &it.finish(loss))
    }
}

/// Returns the elements of rows moved to later places, with `fill` before the first.
fn shifted(builder: &mut Builder, rows: Value, n: i32, fill: f64) -> Value {
    let pad = Pad { low: vec![0, n], shape: builder.shape(rows), fill };
    builder.graph.add(pad.into(), &[rows])
}

/// Returns `log(e^x + e^y + ..)`, by the distances from the largest, through which no gradient
/// flows.
fn log_sum_exp(it: &mut ScalarBuilder, terms: [Register; 3]) -> Register {
    let largest = terms.into_iter().reduce(|x, y| it.binary(Binary::Maximum, x, y));
    let largest = it.detach(largest.expect("there are three"));
    let powers = terms.map(|x| {
        let distance = it.sub(x, largest);
        it.unary(Unary::Exp, distance)
    });
    let sum = powers.into_iter().reduce(|x, y| it.add(x, y)).expect("there are three");
    let logarithm = it.unary(Unary::Log, sum);
    it.add(logarithm, largest)
}

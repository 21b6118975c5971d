"""Images are moved and mirrored while a net learns them."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from image_nets import image_learner, images, learned, squares, with_images

from shoestring.training.families.image_net.settings import ImageNetSettings


def test_mirrored_images_hide_which_half_is_bright() -> None:
    pixels, target = images(256)["image"], (np.arange(256) % 2).astype(np.int32)
    pixels[::2, :, :, 3:] += 100
    samples = with_images(pixels, target)
    plain, mirrored = learned(samples, 40), learned(samples, 40, flip=True)
    assert plain.loss([samples], plain.net) < 0.1
    assert mirrored.loss([samples], mirrored.net) > 0.5


def test_a_net_whose_images_were_moved_knows_moved_images() -> None:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 90, (200, 1, 12, 12), np.uint8)
    pixels[1::2, 0, 5:7, 4:8] += 120
    pixels[::2, 0, 4:8, 5:7] += 120
    target = (np.arange(200) % 2).astype(np.int32)
    train, moved = with_images(pixels, target), with_images(np.roll(pixels, (3, 3), (2, 3)), target)
    losses = [learned(train, 40, shift=shift, stride=1) for shift in (0, 3)]
    still, shifted = (each.loss([moved], each.net) for each in losses)
    assert shifted < 0.2 < still


def test_images_are_moved_by_themselves_once_they_were_seen_three_times_and_after_a_restart() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (64, 1, 28, 28), np.uint8)
    samples = with_images(pixels, (np.arange(64) % 2).astype(np.int32))
    learner = learned(samples, 3)
    inputs = still, *_ = learner.kind.inputs(samples)
    moved, *_ = learner.kind.augmented(inputs, 3.0)
    assert torch.equal(learner.kind.augmented(inputs, 2.9)[0], still)
    padded = F.pad(still, (1, 1, 1, 1))
    places = [padded[:, :, y : y + 28, x : x + 28] for y in range(3) for x in range(3)]
    at = torch.stack([(place == moved).flatten(1).all(1) for place in places])
    assert at.any(0).all() and at.any(1).all()
    saved, restarted = learner.state(), image_learner(samples)
    losses = []
    for each in (learner, restarted):
        each.restore(saved)
        losses.append(each.step(each.prepare(samples), 0.0))
    assert losses[0] == losses[1]
    assert ImageNetSettings(shift=0).shift_at(50.0, 28) == 0 and ImageNetSettings().shift_at(3.0, 224) == 8


def test_dropout_makes_the_loss_of_a_step_higher_than_that_of_the_whole_net() -> None:
    samples = squares(400, 0)
    for dropout in (0, 0.9):
        learner = learned(samples, 60, dropout=dropout)
        whole, step = learner.loss([samples], learner.net), learner.step(learner.prepare(samples), 0.0)
        assert (step > 1.5 * whole + 0.05) == (dropout > 0)

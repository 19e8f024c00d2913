import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError, DataError
from fednode_study.features import ROW_LENGTH, HashedText, SentenceVectors, from_metadata, load_vectors, to_row_length


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(max_size=60), max_size=5), dimension=st.sampled_from([1, 16, 1024]))
def test_rows_have_the_promised_length_or_are_zero(texts, dimension):
    rows = HashedText(dimension).transform(texts)
    assert rows.shape == (len(texts), dimension)
    assert rows.dtype == np.float32
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert np.all((norms == 0) | (np.abs(norms - ROW_LENGTH) < 1e-5))


def test_a_row_depends_on_its_text_alone():
    texts = ["where is my card", "refund please", "a"]
    together = HashedText().transform(texts)
    assert all(
        np.array_equal(HashedText().transform([text])[0], row) for text, row in zip(texts, together, strict=True)
    )


def test_similar_texts_are_closer_than_others():
    where, typo, refund = HashedText().transform(["where is my parcel", "where is my parcle", "I want a refund now"])
    assert where @ typo > 2 * (where @ refund)


def test_blank_text_is_a_zero_row():
    assert not HashedText().transform(["", "  \n"]).any()


def test_metadata_builds_the_same_featuriser_again():
    assert from_metadata(HashedText(77).to_metadata()) == HashedText(77)
    again = from_metadata(
        SentenceVectors(np.zeros((0, 9), np.float32), np.zeros((0, 9), np.float32), "v.npz").to_metadata()
    )
    assert again.dimension == 9
    with pytest.raises(ConfigError, match=r"sentence vectors of v\.npz: encode the 1 new texts"):
        again.transform(["hello"])


@pytest.mark.parametrize("metadata", [{}, {"featuriser": "hashed-text-1"}, {"featuriser": "tfidf", "dimension": "3"}])
def test_metadata_of_another_version_is_refused(metadata):
    with pytest.raises(DataError, match=r"featuriser|dimension"):
        from_metadata(metadata)


@pytest.mark.parametrize("dimension", [0, -1, 2**21])
def test_dimensions_that_cannot_work_are_refused(dimension):
    with pytest.raises(ConfigError, match="feature dimension"):
        HashedText(dimension)


def test_vectors_load_at_the_row_length(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "v.npz", train=rng.normal(size=(5, 8)).astype(np.float16), test=rng.normal(size=(2, 8)))
    vectors = load_vectors(tmp_path / "v.npz", 5, 2)
    assert vectors.dimension == 8
    assert vectors.train.dtype == vectors.test.dtype == np.float32
    assert np.linalg.norm(vectors.train, axis=1) == pytest.approx(ROW_LENGTH, rel=1e-5)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"train": np.zeros((5, 8))}, "no array 'test'"),
        ({"train": np.zeros((5, 8)), "test": np.zeros((2, 7))}, "use one encoder"),
        ({"train": np.zeros(5), "test": np.zeros((2, 8))}, "must be floating"),
        ({"train": np.zeros((5, 8), np.int64), "test": np.zeros((2, 8))}, "must be floating"),
        ({"train": np.full((5, 8), np.nan), "test": np.zeros((2, 8))}, "not finite"),
        ({"train": np.array([{}] * 5), "test": np.zeros((2, 8))}, "not an NPZ file of plain arrays"),
    ],
)
def test_bad_vectors_get_one_clear_sentence(tmp_path, arrays, says):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(DataError, match=says):
        load_vectors(tmp_path / "v.npz", 5, 2)


def test_files_that_are_no_archives_and_no_file_are_refused(tmp_path):
    np.save(tmp_path / "v.npy", np.zeros((2, 2)))
    for content in (b"", b"PK\x03\x04junk", (tmp_path / "v.npy").read_bytes()):
        (tmp_path / "v.npz").write_bytes(content)
        with pytest.raises(DataError, match="not an NPZ file"):
            load_vectors(tmp_path / "v.npz", 1, 1)
    with pytest.raises(DataError, match="there is no file"):
        load_vectors(tmp_path / "none.npz", 1, 1)


def test_huge_and_tiny_rows_reach_the_row_length_too():
    rows = to_row_length(np.array([[3e38, 3e38], [1e-38, 0.0], [0.0, 0.0]], dtype=np.float32))
    assert np.linalg.norm(rows.astype(np.float64), axis=1) == pytest.approx([ROW_LENGTH, ROW_LENGTH, 0.0], rel=1e-6)
